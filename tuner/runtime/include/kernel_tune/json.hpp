// A strict reader of JSON (RFC 8259) with bounds: bad text gives a message, never a crash.
#ifndef KERNEL_TUNE_JSON_HPP
#define KERNEL_TUNE_JSON_HPP

#include <locale.h>
#include <stdlib.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "version.hpp"

namespace kernel_tune {
inline namespace KERNEL_TUNE_NAMESPACE {
namespace detail {

constexpr std::size_t kMaxJsonBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxJsonValues = 2000000;
constexpr const char* kTooManyValues = "manifest.json has more than 2000000 values, which is the limit: make a smaller bundle";
constexpr int kMaxJsonDepth = 200;

struct Json {
    // A beyond is a number that neither a 64-bit integer nor a finite double holds.
    enum class Kind : unsigned char { null, boolean, integer, real, beyond, text, array, object };

    Kind kind = Kind::null;
    bool boolean = false;
    std::int64_t integer = 0;
    double real = 0.0;
    std::string text;
    std::vector<Json> items;        // of an array, or the values of an object
    std::vector<std::string> keys;  // of an object, in the order of the items

    bool is(Kind wanted) const { return kind == wanted; }
    const Json* find(const char* key) const {
        for (std::size_t i = 0; i < keys.size(); ++i)
            if (keys[i] == key) return &items[i];
        return nullptr;
    }
};

class JsonReader {
public:
    // Read a text. The message is empty if it is JSON.
    static std::string read(const std::string& text, Json& value) {
        JsonReader reader(text);
        reader.skip_space();
        if (!reader.value(value, 0)) return reader.message();
        reader.skip_space();
        if (reader.at_ != text.size()) reader.wrong("text after its end");
        return reader.message();
    }

private:
    explicit JsonReader(const std::string& text) : text_(text) {}

    std::string message() const {
        return problem_ ? std::string(problem_) + " at byte " + std::to_string(at_) : std::string();
    }
    bool wrong(const char* problem) {
        if (!problem_) problem_ = problem;
        return false;
    }
    int peek() const { return at_ < text_.size() ? static_cast<unsigned char>(text_[at_]) : -1; }
    bool take(int expected) {
        if (peek() != expected) return false;
        ++at_;
        return true;
    }
    void skip_space() {
        while (peek() == ' ' || peek() == '\n' || peek() == '\t' || peek() == '\r') ++at_;
    }
    bool digit() const { return peek() >= '0' && peek() <= '9'; }

    bool value(Json& out, int depth) {
        if (depth > kMaxJsonDepth) return wrong("values nested too deep");
        if (++values_ > kMaxJsonValues) return wrong(kTooManyValues);
        switch (peek()) {
            case '{': return object(out, depth);
            case '[': return array(out, depth);
            case '"': out.kind = Json::Kind::text; return string(out.text);
            case 't': out.kind = Json::Kind::boolean; out.boolean = true; return word("true");
            case 'f': out.kind = Json::Kind::boolean; return word("false");
            case 'n': return word("null");
            default: return number(out);
        }
    }

    bool word(const char* expected) {
        const std::size_t length = std::strlen(expected);
        if (text_.compare(at_, length, expected) != 0) return wrong("an unknown word");
        at_ += length;
        return true;
    }

    bool array(Json& out, int depth) {
        out.kind = Json::Kind::array;
        ++at_;
        skip_space();
        if (take(']')) return true;
        for (;;) {
            skip_space();
            out.items.emplace_back();
            if (!value(out.items.back(), depth + 1)) return false;
            skip_space();
            if (take(']')) return true;
            if (!take(',')) return wrong("neither a comma nor the end of a list");
        }
    }

    bool object(Json& out, int depth) {
        out.kind = Json::Kind::object;
        ++at_;
        skip_space();
        if (take('}')) return true;
        for (;;) {
            skip_space();
            std::string key;
            if (peek() != '"') return wrong("no key");
            if (!string(key)) return false;
            // Looked through one by one: objects of a manifest are small, and this bounds what a damaged one costs.
            if (out.keys.size() >= 1000) return wrong("too many keys");
            if (out.find(key.c_str())) return wrong("a key that is there twice");
            skip_space();
            if (!take(':')) return wrong("no colon");
            skip_space();
            out.keys.push_back(std::move(key));
            out.items.emplace_back();
            if (!value(out.items.back(), depth + 1)) return false;
            skip_space();
            if (take('}')) return true;
            if (!take(',')) return wrong("neither a comma nor the end of an object");
        }
    }

    bool number(Json& out) {
        const std::size_t start = at_;
        const bool negative = take('-');
        if (!digit()) return wrong("no value");
        const bool zero = peek() == '0';
        std::uint64_t magnitude = 0;
        bool fits = true, whole = true;
        std::size_t digits = 0;
        for (; digit(); ++at_, ++digits) {
            const auto next = static_cast<std::uint64_t>(peek() - '0');
            fits = fits && magnitude <= (std::numeric_limits<std::uint64_t>::max() - next) / 10;
            if (fits) magnitude = magnitude * 10 + next;
        }
        if (zero && digits > 1) return wrong("a number with a leading zero");
        if (take('.')) {
            whole = false;
            if (!digit()) return wrong("no digit after a point");
            while (digit()) ++at_;
        }
        if (peek() == 'e' || peek() == 'E') {
            whole = false;
            ++at_;
            if (!take('-')) take('+');
            if (!digit()) return wrong("no digit in an exponent");
            while (digit()) ++at_;
        }
        const std::uint64_t most = std::uint64_t{1} << 63;
        if (!whole) {
            // The program's own locale may have another decimal point.
            static const locale_t plain = newlocale(LC_ALL_MASK, "C", locale_t{});
            out.real = strtod_l(text_.substr(start, at_ - start).c_str(), nullptr, plain);
            out.kind = std::isfinite(out.real) ? Json::Kind::real : Json::Kind::beyond;
        } else if (!fits || magnitude > (negative ? most : most - 1)) {
            out.kind = Json::Kind::beyond;
        } else {
            out.kind = Json::Kind::integer;
            out.integer = negative && magnitude ? -static_cast<std::int64_t>(magnitude - 1) - 1
                                                : static_cast<std::int64_t>(magnitude);
        }
        return true;
    }

    bool string(std::string& out) {
        ++at_;
        for (;;) {
            const int c = peek();
            if (c < 0) return wrong("a text without an end");
            if (c < 0x20) return wrong("a control character in a text");
            if (c >= 0x80) {
                if (!utf8(out)) return wrong("bytes that are no UTF-8");
                continue;
            }
            ++at_;
            if (c == '"') return true;
            if (c != '\\') {
                out.push_back(static_cast<char>(c));
            } else if (!escape(out)) {
                return wrong("a wrong escape in a text");
            }
        }
    }

    bool utf8(std::string& out) {
        const int first = peek();
        const int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
        if (first < 0xc2 || first > 0xf4 || text_.size() - at_ <= static_cast<std::size_t>(more)) return false;
        for (int i = 1; i <= more; ++i) {
            const int next = static_cast<unsigned char>(text_[at_ + static_cast<std::size_t>(i)]);
            if ((next & 0xc0) != 0x80) return false;
            if (i > 1) continue;
            // Overlong forms, surrogates, and what is beyond Unicode.
            if ((first == 0xe0 && next < 0xa0) || (first == 0xed && next > 0x9f)) return false;
            if ((first == 0xf0 && next < 0x90) || (first == 0xf4 && next > 0x8f)) return false;
        }
        out.append(text_, at_, static_cast<std::size_t>(more) + 1);
        at_ += static_cast<std::size_t>(more) + 1;
        return true;
    }

    bool escape(std::string& out) {
        static const char plain[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
        const int c = peek();
        if (c <= 0) return false;
        ++at_;
        if (const char* found = std::strchr(plain, c)) {
            out.push_back(meant[found - plain]);
            return true;
        }
        std::uint32_t code = 0, low = 0;
        if (c != 'u' || !hexadecimal(code)) return false;
        if (code >= 0xd800 && code < 0xdc00) {
            if (!take('\\') || !take('u') || !hexadecimal(low) || low < 0xdc00 || low > 0xdfff) return false;
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        } else if (code >= 0xdc00 && code < 0xe000) {
            return false;
        }
        const auto push = [&out](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
        if (code < 0x80) {
            push(code);
        } else if (code < 0x800) {
            push(0xc0 | code >> 6), push(0x80 | (code & 0x3f));
        } else if (code < 0x10000) {
            push(0xe0 | code >> 12), push(0x80 | (code >> 6 & 0x3f)), push(0x80 | (code & 0x3f));
        } else {
            push(0xf0 | code >> 18), push(0x80 | (code >> 12 & 0x3f));
            push(0x80 | (code >> 6 & 0x3f)), push(0x80 | (code & 0x3f));
        }
        return true;
    }

    bool hexadecimal(std::uint32_t& code) {
        for (int i = 0; i < 4; ++i, ++at_) {
            const int c = peek();
            const int nibble = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
            if (nibble < 0) return false;
            code = code << 4 | static_cast<std::uint32_t>(nibble);
        }
        return true;
    }

    const std::string& text_;
    std::size_t at_ = 0;
    std::size_t values_ = 0;
    const char* problem_ = nullptr;
};

}  // namespace detail
}  // namespace KERNEL_TUNE_NAMESPACE
}  // namespace kernel_tune

#endif
