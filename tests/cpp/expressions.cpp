// Evaluates the cases of tests/expressions.json, and says which differ.
#include <kernel_tune/expression.hpp>

#include <cstdio>
#include <fstream>
#include <sstream>

using namespace kernel_tune::detail;

int main(int, char** arguments) {
    std::ifstream file{arguments[1]};
    std::stringstream text;
    text << file.rdbuf();
    Json cases;
    const std::string problem = JsonReader::read(text.str(), cases);
    if (!problem.empty()) return std::printf("no JSON: %s\n", problem.c_str()), 1;
    int wrong = 0;
    for (std::size_t i = 0; i < cases.items.size(); ++i) {
        const Json& one = cases.items[i];
        std::vector<std::string> names;
        std::vector<std::int64_t> values;
        if (const Json* of = one.find("names")) {
            names = of->keys;
            for (const Json& value : of->items) values.push_back(value.integer);
        }
        Expression expression;
        const bool read = Expression::read(*one.find("expression"), names, expression);
        bool right = read == !one.find("refused");
        if (right && read) {
            const Number value = expression.evaluate(values);
            const Json& wanted = *one.find("value");
            if (wanted.is(Json::Kind::null)) right = value.none();
            if (wanted.is(Json::Kind::integer)) right = value.whole() && value.integer == wanted.integer;
            if (wanted.is(Json::Kind::real))
                right = value.kind == Number::Kind::real && std::fabs(value.real - wanted.real) <= 1e-15 * std::fabs(wanted.real);
        }
        if (!right && ++wrong) std::printf("case %zu differs\n", i);
    }
    std::printf("%zu cases, %d differ\n", cases.items.size(), wrong);
    return wrong || cases.items.empty();
}
