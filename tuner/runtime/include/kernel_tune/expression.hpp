// The expressions of a manifest: checked once, evaluated with 64-bit integers and finite doubles.
//
// runtime/expressions.py evaluates the same ones to the same values, as Python's operators define them.
#ifndef KERNEL_TUNE_EXPRESSION_HPP
#define KERNEL_TUNE_EXPRESSION_HPP

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "json.hpp"

namespace kernel_tune {
inline namespace KERNEL_TUNE_NAMESPACE {
namespace detail {

// A number, or none: a quotient by zero or an integer beyond 64 bits has no value.
struct Number {
    enum class Kind : unsigned char { none, integer, real };

    Kind kind = Kind::none;
    std::int64_t integer = 0;
    double real = 0.0;

    static Number of(std::int64_t value) { return {Kind::integer, value, 0.0}; }
    static Number of(double value) { return std::isfinite(value) ? Number{Kind::real, 0, value} : Number{}; }
    static Number truth(bool value) { return of(std::int64_t{value}); }

    bool none() const { return kind == Kind::none; }
    bool whole() const { return kind == Kind::integer; }
    double as_double() const { return whole() ? static_cast<double>(integer) : real; }
    bool holds() const { return whole() ? integer != 0 : kind == Kind::real && real != 0.0; }
};

class Expression {
public:
    static constexpr int kMaxDepth = 100;
    static constexpr std::size_t kMaxParts = 10000;

    Expression() : Expression(Number::of(std::int64_t{0})) {}
    explicit Expression(Number constant) : parts_{Part{Operator::constant, constant, 0, 1}} {}

    // Read an expression; false if it is none, or has a name that is not among those that will have a value.
    static bool read(const Json& json, const std::vector<std::string>& names, Expression& out) {
        out.parts_.clear();
        return out.add(json, names, 1);
    }

    // Return the value for one set of names: a value for each of those that it was read with.
    Number evaluate(const std::vector<std::int64_t>& values) const {
        std::size_t at = 0;
        return evaluate(values, at);
    }

private:
    enum class Operator : unsigned char {
        constant, name,
        add, subtract, multiply, divide, floor_divide, modulo, power, bit_and, bit_or, bit_xor,
        equal, unequal, less, less_equal, greater, greater_equal, ceil_divide, round_up,
        negate, logical_not, absolute, is_pow2, log2,
        minimum, maximum, logical_and, logical_or, choose
    };
    // Parts lie in the order in which they are read: an operation before its operands.
    struct Part {
        Operator op;
        Number constant;
        std::size_t count;  // operands; of a name its index
        std::size_t size;   // parts with all operands
    };
    struct Known {
        const char* text;
        Operator op;
        std::size_t least, most;
    };

    static const Known* known(const std::string& text) {
        static const Known all[] = {
            {"+", Operator::add, 2, 2}, {"-", Operator::subtract, 2, 2}, {"*", Operator::multiply, 2, 2},
            {"/", Operator::divide, 2, 2}, {"//", Operator::floor_divide, 2, 2}, {"%", Operator::modulo, 2, 2},
            {"**", Operator::power, 2, 2}, {"&", Operator::bit_and, 2, 2}, {"|", Operator::bit_or, 2, 2},
            {"^", Operator::bit_xor, 2, 2}, {"==", Operator::equal, 2, 2}, {"!=", Operator::unequal, 2, 2},
            {"<", Operator::less, 2, 2}, {"<=", Operator::less_equal, 2, 2}, {">", Operator::greater, 2, 2},
            {">=", Operator::greater_equal, 2, 2}, {"ceil_div", Operator::ceil_divide, 2, 2},
            {"round_up", Operator::round_up, 2, 2}, {"neg", Operator::negate, 1, 1}, {"not", Operator::logical_not, 1, 1},
            {"abs", Operator::absolute, 1, 1}, {"is_pow2", Operator::is_pow2, 1, 1}, {"log2", Operator::log2, 1, 1},
            {"min", Operator::minimum, 1, kMaxParts}, {"max", Operator::maximum, 1, kMaxParts},
            {"and", Operator::logical_and, 0, kMaxParts}, {"or", Operator::logical_or, 0, kMaxParts},
            {"if", Operator::choose, 3, 3}};
        for (const Known& one : all)
            if (text == one.text) return &one;
        return nullptr;
    }

    bool add(const Json& json, const std::vector<std::string>& names, int depth) {
        if (depth > kMaxDepth || parts_.size() >= kMaxParts) return false;
        const std::size_t at = parts_.size();
        parts_.push_back({Operator::constant, {}, 0, 1});
        switch (json.kind) {
            case Json::Kind::boolean: parts_[at].constant = Number::truth(json.boolean); return true;
            case Json::Kind::integer: parts_[at].constant = Number::of(json.integer); return true;
            case Json::Kind::real: parts_[at].constant = Number::of(json.real); return true;
            case Json::Kind::text:
                parts_[at].op = Operator::name;
                for (std::size_t& i = parts_[at].count; i < names.size(); ++i)
                    if (names[i] == json.text) return true;
                return false;
            case Json::Kind::array: break;
            default: return false;
        }
        const Known* found = !json.items.empty() && json.items[0].is(Json::Kind::text) ? known(json.items[0].text) : nullptr;
        const std::size_t count = json.items.size() - 1;
        if (!found || count < found->least || count > found->most) return false;
        for (std::size_t i = 1; i <= count; ++i)
            if (!add(json.items[i], names, depth + 1)) return false;
        parts_[at].op = found->op;
        parts_[at].count = count;
        parts_[at].size = parts_.size() - at;
        return true;
    }

    // Evaluate the part at an index, and move the index behind it.
    Number evaluate(const std::vector<std::int64_t>& values, std::size_t& at) const {
        const Part& part = parts_[at];
        const std::size_t end = at + part.size;
        ++at;
        Number result;
        switch (part.op) {
            case Operator::constant: result = part.constant; break;
            case Operator::name: result = Number::of(values[part.count]); break;
            case Operator::logical_and:
            case Operator::logical_or: {
                const bool stops = part.op == Operator::logical_or;
                result = Number::truth(!stops);
                while (at < end) {
                    const Number operand = evaluate(values, at);
                    if (operand.none()) result = operand;
                    if (!operand.none() && operand.holds() == stops) result = Number::truth(stops);
                    if (operand.none() || operand.holds() == stops) break;
                }
                break;
            }
            case Operator::choose: {
                const Number condition = evaluate(values, at);
                if (condition.none()) break;
                if (!condition.holds()) at += parts_[at].size;
                result = evaluate(values, at);
                break;
            }
            default: {
                result = evaluate(values, at);
                if (part.count == 1 && part.op < Operator::minimum) result = unary(part.op, result);
                while (at < end) {
                    const Number other = evaluate(values, at);
                    result = result.none() || other.none() ? Number{} : binary(part.op, result, other);
                }
            }
        }
        at = end;
        return result;
    }

    static Number unary(Operator op, const Number& a) {
        if (a.none()) return a;
        switch (op) {
            case Operator::logical_not: return Number::truth(!a.holds());
            case Operator::absolute: return a.whole() ? (a.integer < 0 ? negative(a) : a) : Number::of(std::fabs(a.real));
            case Operator::is_pow2:
                return a.whole() ? Number::truth(a.integer > 0 && (a.integer & (a.integer - 1)) == 0) : Number{};
            case Operator::log2: return a.as_double() > 0.0 ? Number::of(std::log2(a.as_double())) : Number{};
            default: return negative(a);
        }
    }

    static Number negative(const Number& a) {
        if (!a.whole()) return a.none() ? a : Number::of(-a.real);
        return a.integer == std::numeric_limits<std::int64_t>::min() ? Number{} : Number::of(-a.integer);
    }

    static Number binary(Operator op, const Number& a, const Number& b) {
        switch (op) {
            case Operator::divide: return b.as_double() == 0.0 ? Number{} : Number::of(a.as_double() / b.as_double());
            case Operator::power: return power(a, b);
            case Operator::ceil_divide: return ceil_divide(a, b);
            case Operator::round_up: {
                const Number whole = ceil_divide(a, b);
                return whole.none() ? whole : binary(Operator::multiply, whole, b);
            }
            case Operator::minimum: return binary(Operator::less, b, a).holds() ? b : a;
            case Operator::maximum: return binary(Operator::greater, b, a).holds() ? b : a;
            default: return a.whole() && b.whole() ? integers(op, a.integer, b.integer) : reals(op, a.as_double(), b.as_double());
        }
    }

    static Number ceil_divide(const Number& a, const Number& b) {
        const Number numerator = negative(a);
        return numerator.none() ? numerator : negative(binary(Operator::floor_divide, numerator, b));
    }

    static Number integers(Operator op, std::int64_t a, std::int64_t b) {
        std::int64_t result = 0;
        switch (op) {
            case Operator::add: return __builtin_add_overflow(a, b, &result) ? Number{} : Number::of(result);
            case Operator::subtract: return __builtin_sub_overflow(a, b, &result) ? Number{} : Number::of(result);
            case Operator::multiply: return __builtin_mul_overflow(a, b, &result) ? Number{} : Number::of(result);
            case Operator::floor_divide:
                if (b == 0) return {};
                if (b == -1) return negative(Number::of(a));
                return Number::of(a / b - (a % b != 0 && (a % b < 0) != (b < 0) ? 1 : 0));
            case Operator::modulo:
                if (b == 0) return {};
                if (b == -1) return Number::of(std::int64_t{0});
                return Number::of(a % b + (a % b != 0 && (a % b < 0) != (b < 0) ? b : 0));
            case Operator::bit_and: return Number::of(a & b);
            case Operator::bit_or: return Number::of(a | b);
            case Operator::bit_xor: return Number::of(a ^ b);
            default: return compare(op, a, b);
        }
    }

    static Number reals(Operator op, double a, double b) {
        switch (op) {
            case Operator::add: return Number::of(a + b);
            case Operator::subtract: return Number::of(a - b);
            case Operator::multiply: return Number::of(a * b);
            case Operator::floor_divide: case Operator::modulo: {
                // As Python divides floats.
                if (b == 0.0) return {};
                double rest = std::fmod(a, b), quotient = (a - rest) / b;
                if (rest == 0.0) {
                    rest = std::copysign(0.0, b);
                } else if ((b < 0.0) != (rest < 0.0)) {
                    rest += b;
                    quotient -= 1.0;
                }
                if (op == Operator::modulo) return Number::of(rest);
                if (quotient == 0.0) return Number::of(std::copysign(0.0, a / b));
                const double below = std::floor(quotient);
                return Number::of(quotient - below > 0.5 ? below + 1.0 : below);
            }
            case Operator::bit_and: case Operator::bit_or: case Operator::bit_xor: return {};
            default: return compare(op, a, b);
        }
    }

    template <typename T>
    static Number compare(Operator op, T a, T b) {
        switch (op) {
            case Operator::equal: return Number::truth(!(a < b) && !(b < a));
            case Operator::unequal: return Number::truth(a < b || b < a);
            case Operator::less: return Number::truth(a < b);
            case Operator::less_equal: return Number::truth(a <= b);
            case Operator::greater: return Number::truth(a > b);
            case Operator::greater_equal: return Number::truth(a >= b);
            default: return {};
        }
    }

    static Number power(const Number& base, const Number& exponent) {
        if (std::fabs(exponent.as_double()) > 64.0) return {};
        if (!base.whole() || !exponent.whole() || exponent.integer < 0) {
            if (base.as_double() == 0.0 && exponent.as_double() < 0.0) return {};
            return Number::of(std::pow(base.as_double(), exponent.as_double()));
        }
        Number result = Number::of(std::int64_t{1});
        for (std::int64_t i = 0; i < exponent.integer && !result.none(); ++i)
            result = integers(Operator::multiply, result.integer, base.integer);
        return result;
    }

    std::vector<Part> parts_;
};

}  // namespace detail
}  // namespace KERNEL_TUNE_NAMESPACE
}  // namespace kernel_tune

#endif
