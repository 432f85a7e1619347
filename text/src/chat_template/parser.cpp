// Reads the statements of a chat template, as Jinja's parser does: the same precedence of operators.
#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "chat_template/syntax.h"
#include "chat_template/token_reader.h"

namespace rf::text::chat {

namespace {

using Kind = Expression::Kind;

class Parser : TokenReader {
 public:
  using TokenReader::TokenReader;

  Template read() {
    Template out{body({})};
    if (!is(Token::Kind::kEnd)) refuse("{} must follow its block's beginning", token().text);
    return out;
  }

 private:
  // Counts nested calls, which use the stack.
  class Depth {
   public:
    explicit Depth(int& depth) : depth_(depth) {
      if (++depth_ > kMaxDepth) refuse("expressions and blocks must be nested at most {} times", kMaxDepth);
    }
    ~Depth() { --depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    static constexpr int kMaxDepth = 200;
    int& depth_;
  };

  // Statements up to a block that begins with one of `ends`, which is not taken.
  std::vector<Statement> body(const std::vector<std::string_view>& ends) {
    const Depth depth(depth_);
    std::vector<Statement> statements;
    while (!is(Token::Kind::kEnd)) {
      if (is(Token::Kind::kText)) {
        statements.push_back({.kind = Statement::Kind::kText, .line = token().line, .text = token().text});
        take();
      } else if (is(Token::Kind::kOutput)) {
        take();
        Statement output{.kind = Statement::Kind::kOutput, .line = line()};
        output.expression = tuple();
        end_tag();
        statements.push_back(std::move(output));
      } else {
        for (const std::string_view end : ends) {
          if (is_name(end, 1)) return statements;
        }
        block(statements);
      }
    }
    if (!ends.empty()) refuse("a block must end with {}, got the end of the template", ends.back());
    return statements;
  }
  // The body of a block whose tag ends here, with its own ending.
  std::vector<Statement> block_body(std::string_view end) {
    end_tag();
    std::vector<Statement> statements = body({end});
    take();
    take();
    return statements;
  }

  void block(std::vector<Statement>& to) {
    take();
    const Token name = take();
    Statement statement{.line = name.line};
    if (name.text == "if") {
      statement = if_block();
    } else if (name.text == "for") {
      for_block(statement);
    } else if (name.text == "set") {
      set_block(statement);
    } else if (name.text == "macro") {
      macro(statement);
    } else if (name.text == "filter") {
      statement.kind = Statement::Kind::kFilter;
      statement.expression = filters({.kind = Kind::kName, .line = line(), .name = std::string(kBody)}, true);
      statement.body = block_body("endfilter");
    } else if (name.text == "call") {
      statement.kind = Statement::Kind::kCall;
      if (is_operator("(")) refuse("the body of a call must have no parameters");
      statement.expression = expression();
      statement.text = "caller";
      if (statement.expression.kind != Kind::kCall) refuse("a call must be of a macro");
      ++scopes_;
      statement.body = block_body("endcall");
      --scopes_;
    } else if (name.text == "generation") {
      for (Statement& each : block_body("endgeneration")) to.push_back(std::move(each));
      return end_tag();
    } else if (name.text == "break" || name.text == "continue") {
      if (loops_ == 0) refuse("{} must be in a loop", name.text);
      statement.kind = name.text == "break" ? Statement::Kind::kBreak : Statement::Kind::kContinue;
    } else {
      refuse("a block must be if, for, set, macro, call, filter, generation, break or continue, got {}",
             io::printable(name.text));
    }
    end_tag();
    to.push_back(std::move(statement));
  }

  Statement if_block() {
    const Depth depth(depth_);
    Statement statement{.kind = Statement::Kind::kIf, .line = line()};
    statement.expression = tuple();
    end_tag();
    statement.body = body({"elif", "else", "endif"});
    take();
    if (take_name("elif")) {
      statement.otherwise.push_back(if_block());  // and takes the endif
      return statement;
    }
    if (take_name("else")) {
      end_tag();
      statement.otherwise = body({"endif"});
      take();
    }
    take();
    return statement;
  }
  void for_block(Statement& statement) {
    statement.kind = Statement::Kind::kFor;
    statement.targets = targets();
    if (!take_name("in")) refuse_token("in");
    statement.expression = tuple(false);
    if (take_name("if")) statement.condition = expression();
    if (is_name("recursive")) refuse("a loop must not be recursive");
    end_tag();
    ++loops_;
    ++scopes_;
    statement.body = body({"else", "endfor"});
    --loops_;
    take();
    if (take_name("else")) {
      end_tag();
      statement.otherwise = body({"endfor"});
      take();
    }
    --scopes_;
    take();
  }
  void set_block(Statement& statement) {
    statement.targets = targets();
    if (take_operator("=")) {
      statement.kind = Statement::Kind::kSet;
      statement.expression = tuple();
      return;
    }
    statement.kind = Statement::Kind::kCapture;
    statement.expression = filters({.kind = Kind::kName, .line = line(), .name = std::string(kBody)}, false);
    ++scopes_;
    statement.body = block_body("endset");
    --scopes_;
  }
  void macro(Statement& statement) {
    if (scopes_ > 0) refuse("a macro must be outside of loops and other macros");
    statement.kind = Statement::Kind::kMacro;
    statement.text = expect_name();
    expect_operator("(");
    while (!take_operator(")")) {
      if (!statement.parameters.empty()) expect_operator(",");
      statement.parameters.push_back(expect_name());
      if (take_operator("=")) {
        statement.defaults.push_back(expression());
      } else if (!statement.defaults.empty()) {
        refuse("a parameter without default must be before those with one");
      }
    }
    const int loops = std::exchange(loops_, 0);
    ++scopes_;
    statement.body = block_body("endmacro");
    --scopes_;
    loops_ = loops;
  }
  std::vector<Target> targets() {
    const bool has_parentheses = take_operator("(");
    std::vector<Target> found;
    do {
      Target target{.name = expect_name(), .field = {}};
      if (take_operator(".")) target.field = expect_name();
      found.push_back(std::move(target));
    } while (take_operator(",") && is(Token::Kind::kName) && !is_name("in"));
    if (has_parentheses) expect_operator(")");
    return found;
  }

  // Chains such as a + b + .. also nest expressions; they use stack only when they are evaluated, not here.
  static void add(Expression& to, Expression part) {
    constexpr int kMaxDepth = 500;
    to.depth = std::max(to.depth, part.depth + 1);
    if (to.depth > kMaxDepth) refuse("an expression must have at most {} operators in a row", kMaxDepth);
    to.parts.push_back(std::move(part));
  }
  Expression made(Kind kind, Expression first) const {
    Expression out{.kind = kind, .line = line()};
    add(out, std::move(first));
    return out;
  }
  static Expression pair_of(Expression operation, Expression second) {
    add(operation, std::move(second));
    return operation;
  }

  // One expression, or a tuple of several without parentheses.
  Expression tuple(bool with_conditional = true) {
    const auto item = [&] { return with_conditional ? expression() : disjunction(); };
    Expression first = item();
    if (!is_operator(",")) return first;
    Expression out = made(Kind::kTuple, std::move(first));
    while (take_operator(",")) {
      if (is(Token::Kind::kTagEnd) || is_operator(")") || is_operator("=")) break;
      add(out, item());
    }
    return out;
  }
  Expression expression() {
    const Depth depth(depth_);
    Expression value = disjunction();
    while (take_name("if")) {
      Expression conditional = made(Kind::kConditional, std::move(value));
      add(conditional, disjunction());
      add(conditional, take_name("else") ? expression() : Expression{.value = Value(Undefined{"the else"})});
      value = std::move(conditional);
    }
    return value;
  }
  Expression disjunction() {
    Expression left = conjunction();
    while (take_name("or")) left = pair_of(made(Kind::kOr, std::move(left)), conjunction());
    return left;
  }
  Expression conjunction() {
    Expression left = negation();
    while (take_name("and")) left = pair_of(made(Kind::kAnd, std::move(left)), negation());
    return left;
  }
  Expression negation() {
    const Depth depth(depth_);
    return take_name("not") ? made(Kind::kNot, negation()) : comparison();
  }
  Expression comparison() {
    Expression left = sum();
    std::vector<std::string> operators;
    std::vector<Expression> operands;
    while (true) {
      static constexpr std::array<std::string_view, 6> kOperators = {"==", "!=", "<", "<=", ">", ">="};
      const bool is_compared =
          is(Token::Kind::kOperator) && std::ranges::find(kOperators, token().text) != kOperators.end();
      if (is_compared || is_name("in")) {
        operators.push_back(take().text);
      } else if (is_name("not") && is_name("in", 1)) {
        take();
        take();
        operators.emplace_back("not in");
      } else {
        break;
      }
      operands.push_back(sum());
    }
    if (operators.empty()) return left;
    Expression out = made(Kind::kComparison, std::move(left));
    for (Expression& operand : operands) add(out, std::move(operand));
    out.keywords = std::move(operators);
    return out;
  }
  // Operands of operators of one rank, from left to right.
  template <typename Operand>
  Expression operations(std::initializer_list<std::string_view> operators, Operand operand) {
    Expression left = operand();
    while (is(Token::Kind::kOperator) && std::ranges::find(operators, token().text) != operators.end()) {
      const std::string name = take().text;
      Expression operation = made(Kind::kOperation, std::move(left));
      operation.name = name;
      left = pair_of(std::move(operation), operand());
    }
    return left;
  }
  Expression sum() {
    return operations({"+", "-"}, [this] { return join(); });
  }
  Expression join() {
    Expression first = product();
    if (!is_operator("~")) return first;
    Expression out = made(Kind::kJoin, std::move(first));
    while (take_operator("~")) add(out, product());
    return out;
  }
  Expression product() {
    return operations({"*", "/", "//", "%"}, [this] { return operations({"**"}, [this] { return sign(true); }); });
  }
  Expression sign(bool with_filters) {
    const Depth depth(depth_);
    Expression value;
    if (is_operator("-") || is_operator("+")) {
      const std::string name = take().text;
      value = made(Kind::kSign, sign(false));
      value.name = name;
    } else {
      value = postfix(primary());
    }
    return with_filters ? filters(std::move(value), false) : value;
  }

  Expression primary() {
    const Depth depth(depth_);
    Expression out{.kind = Kind::kConstant, .line = token().line};
    if (is(Token::Kind::kName)) {
      out.name = take().text;
      const std::string& name = out.name;
      if (name == "true" || name == "True" || name == "false" || name == "False") {
        out.value = Value(name == "true" || name == "True");
      } else if (name == "none" || name == "None") {
        out.value = Value(None{});
      } else {
        out.kind = Kind::kName;
      }
    } else if (is(Token::Kind::kString)) {
      std::string text;
      while (is(Token::Kind::kString)) text += take().text;
      out.value = Value(std::move(text));
    } else if (is(Token::Kind::kInteger) || is(Token::Kind::kFloat)) {
      out.value = number(take());
    } else if (take_operator("(")) {
      if (is_operator(")")) {
        out.kind = Kind::kTuple;
      } else {
        out = tuple();
      }
      expect_operator(")");
    } else if (take_operator("[")) {
      out.kind = Kind::kList;
      list("]", [this, &out] { add(out, expression()); });
    } else if (take_operator("{")) {
      out.kind = Kind::kDict;
      list("}", [this, &out] {
        add(out, expression());
        expect_operator(":");
        add(out, expression());
      });
    } else {
      refuse_token("an expression");
    }
    return out;
  }
  static Value number(const Token& token) {
    const char *begin = token.text.data(), *end = begin + token.text.size();
    if (token.kind == Token::Kind::kFloat) {
      double value = 0;
      std::from_chars(begin, end, value);
      return Value(value);
    }
    int64_t value = 0;
    if (std::from_chars(begin, end, value).ec != std::errc()) {
      refuse("an integer must be at most 2^63 - 1, got {}", io::printable(token.text));
    }
    return Value(value);
  }
  // Items with commas between them, and perhaps after the last.
  template <typename Read>
  void list(std::string_view end, Read read) {
    for (bool is_first = true; !take_operator(end); is_first = false) {
      if (!is_first) {
        expect_operator(",");
        if (take_operator(end)) return;
      }
      read();
    }
  }

  Expression postfix(Expression value) {
    while (true) {
      if (take_operator(".")) {
        if (is(Token::Kind::kInteger)) {
          const Token index = take();
          value = pair_of(made(Kind::kItem, std::move(value)), {.line = index.line, .value = number(index)});
        } else {
          Expression attribute = made(Kind::kAttribute, std::move(value));
          attribute.name = expect_name();
          value = std::move(attribute);
        }
      } else if (take_operator("[")) {
        value = item(std::move(value));
      } else if (is_operator("(")) {
        value = arguments(made(Kind::kCall, std::move(value)));
      } else {
        return value;
      }
    }
  }
  Expression item(Expression value) {
    std::vector<Expression> bounds(3, Expression{.line = line(), .value = Value(None{})});
    size_t colons = 0;
    while (!is_operator("]")) {
      if (colons < 2 && take_operator(":")) {
        ++colons;
      } else {
        bounds[colons] = expression();
        if (!is_operator("]") && !(is_operator(":") && colons < 2)) refuse_token("]");
      }
      if (colons == 0 && is_operator("]")) {
        take();
        return pair_of(made(Kind::kItem, std::move(value)), std::move(bounds[0]));
      }
    }
    if (colons == 0) refuse_token("an index");
    take();
    Expression out = made(Kind::kSlice, std::move(value));
    for (Expression& bound : bounds) add(out, std::move(bound));
    return out;
  }
  // Adds (a, b, name=c) to a call.
  Expression arguments(Expression call) {
    expect_operator("(");
    list(")", [this, &call] {
      if (is_operator("*") || is_operator("**")) refuse("an argument must not be unpacked by {}", token().text);
      std::string keyword;
      if (is(Token::Kind::kName) && is(Token::Kind::kOperator, 1) && token(1).text == "=") {
        keyword = take().text;
        take();
      } else if (!call.keywords.empty() && !call.keywords.back().empty()) {
        refuse("a positional argument must be before those with names");
      }
      call.keywords.push_back(std::move(keyword));
      add(call, expression());
    });
    return call;
  }
  // Filters and tests after a value. of_block: the first one lacks the |.
  Expression filters(Expression value, bool of_block) {
    while (true) {
      if (std::exchange(of_block, false) || take_operator("|")) {
        Expression filter = made(Kind::kFilter, std::move(value));
        filter.name = expect_name();
        value = is_operator("(") ? arguments(std::move(filter)) : std::move(filter);
      } else if (take_name("is")) {
        value = test(std::move(value));
      } else if (is_operator("(")) {
        value = arguments(made(Kind::kCall, std::move(value)));
      } else {
        return value;
      }
    }
  }
  Expression test(Expression value) {
    const bool is_negated = take_name("not");
    Expression out = made(Kind::kTest, std::move(value));
    out.name = expect_name();
    const bool has_argument = is(Token::Kind::kString) || is(Token::Kind::kInteger) || is(Token::Kind::kFloat) ||
                              is_operator("[") || is_operator("{") ||
                              (is(Token::Kind::kName) && !is_name("else") && !is_name("or") && !is_name("and") &&
                               !is_name("if") && !is_name("is") && !is_name("in") && !is_name("not"));
    if (is_operator("(")) {
      out = arguments(std::move(out));
    } else if (has_argument) {
      add(out, postfix(primary()));
      out.keywords.emplace_back();
    }
    return is_negated ? made(Kind::kNot, std::move(out)) : out;
  }

  int depth_ = 0, loops_ = 0, scopes_ = 0;
};

}  // namespace

Template read_template(std::string_view source, int& line) { return Parser(read_tokens(source, line), line).read(); }

}  // namespace rf::text::chat
