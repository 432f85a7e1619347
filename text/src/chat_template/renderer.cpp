// Renders chat templates.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "chat_template/functions.h"
#include "chat_template/strings.h"
#include "chat_template/syntax.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/text/chat_template.h"

namespace rf::text {

namespace chat {

namespace {

using Kind = Expression::Kind;

// The variables of a loop iteration, of a macro or of the template; variables of outer scopes are read, not changed.
struct Scope {
  const Scope* outer = nullptr;
  Dict variables{};

  const Value* find(std::string_view name) const {
    const Value* found = chat::find(variables, name);
    return found != nullptr || outer == nullptr ? found : outer->find(name);
  }
};

class Renderer {
 public:
  // line: of what is rendered, for messages.
  Renderer(Dict variables, int& line) : root_{.variables = std::move(variables)}, line_(line) {}

  std::string render(const Template& source) {
    run(source.body, root_);
    return out_.take();
  }

 private:
  enum class Flow { kNext, kBreak, kContinue };

  // Bounds the work, and the stack of nested calls.
  class Step {
   public:
    Step(Renderer& renderer, int line) : renderer_(renderer) {
      constexpr int kMaxDepth = 1000;
      renderer.line_ = line;
      renderer.work(1);
      if (++renderer.depth_ > kMaxDepth) refuse("calls must be nested at most {} times", kMaxDepth);
    }
    ~Step() { --renderer_.depth_; }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    Renderer& renderer_;
  };

  void work(size_t steps) {
    constexpr size_t kMaxWork = 20'000'000;
    work_ += steps;
    if (work_ > kMaxWork) refuse("a template must end within {} steps", kMaxWork);
  }
  static constexpr size_t kBytesPerStep = 64;
  void append(const std::string& text) {
    work(text.size() / kBytesPerStep);
    out_.append(text);
  }
  // Counts the bytes and items of a result.
  Value worked(Value value) {
    if (const std::string* text = value.text()) work(text->size() / kBytesPerStep);
    if (const List* items = value.items()) work(items->size());
    if (const Dict* dict = value.dict()) work(dict->size());
    return value;
  }

  // --- Statements ----------------------------------------------------------------------------------------------------

  Flow run(const std::vector<Statement>& statements, Scope& scope) {
    for (const Statement& statement : statements) {
      const Step step(*this, statement.line);
      const Flow flow = run(statement, scope);
      if (flow != Flow::kNext) return flow;
    }
    return Flow::kNext;
  }
  Flow run(const Statement& statement, Scope& scope) {
    switch (statement.kind) {
      case Statement::Kind::kText: out_.append(statement.text); break;
      case Statement::Kind::kOutput: append(evaluate(statement.expression, scope).str()); break;
      case Statement::Kind::kFor: return loop(statement, scope);
      case Statement::Kind::kIf:
        return run(evaluate(statement.expression, scope).truth() ? statement.body : statement.otherwise, scope);
      case Statement::Kind::kSet: assign_all(statement, evaluate(statement.expression, scope), scope); break;
      case Statement::Kind::kCapture: assign_all(statement, filtered(statement, scope), scope); break;
      case Statement::Kind::kFilter: out_.append(filtered(statement, scope).str()); break;
      case Statement::Kind::kMacro:
        assign(scope.variables, statement.text,
               Value(Callable{.name = statement.text, .self = nullptr, .macro = &statement}));
        break;
      case Statement::Kind::kCall: out_.append(call_with_body(statement, scope).str()); break;
      case Statement::Kind::kBreak: return Flow::kBreak;
      case Statement::Kind::kContinue: return Flow::kContinue;
    }
    return Flow::kNext;
  }

  void assign_all(const Statement& statement, const Value& value, Scope& scope) {
    if (statement.targets.size() == 1) return assign_one(statement.targets[0], value, scope);
    if (value.items() == nullptr || value.items()->size() != statement.targets.size()) {
      refuse("{} names must have a list of as many values, got {}", statement.targets.size(), value.type());
    }
    for (size_t i = 0; i < statement.targets.size(); ++i) assign_one(statement.targets[i], (*value.items())[i], scope);
  }
  static void assign_one(const Target& target, Value value, Scope& scope) {
    if (target.field.empty()) return assign(scope.variables, target.name, std::move(value));
    const Value* owner = scope.find(target.name);
    if (owner == nullptr || owner->fields() == nullptr)
      refuse("{}.{} must be of a namespace", target.name, target.field);
    if (value.fields() != nullptr) refuse("a namespace must not be an item of another value");
    assign(owner->fields()->fields, target.field, std::move(value));
  }

  // The text of a body.
  std::string captured(const std::vector<Statement>& body, Scope& scope) {
    TextBuilder outer = std::exchange(out_, {});
    run(body, scope);
    return std::exchange(out_, std::move(outer)).take();
  }
  Value filtered(const Statement& statement, Scope& scope) {
    Scope inner{.outer = &scope};
    Scope body{.outer = &inner};
    assign(inner.variables, kBody, Value(captured(statement.body, body)));
    return evaluate(statement.expression, inner);
  }

  // The macro sees its body as the macro caller, which ends with the call.
  Value call_with_body(const Statement& statement, Scope& scope) {
    const Value called = evaluate(statement.expression.parts[0], scope);
    callers_.emplace_back(&statement, &scope);
    Arguments given = arguments(statement.expression, scope);
    given.add("caller", Value(Callable{.name = "caller", .self = nullptr, .macro = &statement}));
    Value result = call(called, std::move(given));
    callers_.pop_back();
    return result;
  }

  Flow loop(const Statement& statement, Scope& scope) {
    List items = items_of(evaluate(statement.expression, scope));
    work(items.size());
    if (statement.condition) {
      std::erase_if(items, [&](const Value& item) {
        Scope turn{.outer = &scope};
        assign_all(statement, item, turn);
        return !evaluate(*statement.condition, turn).truth();
      });
    }
    if (items.empty()) return run(statement.otherwise, scope);
    for (size_t i = 0; i < items.size(); ++i) {
      Scope turn{.outer = &scope};
      assign(turn.variables, "loop", loop_variable(items, i));
      assign_all(statement, items[i], turn);
      if (run(statement.body, turn) == Flow::kBreak) break;
    }
    return Flow::kNext;
  }
  static Value loop_variable(const List& items, size_t i) {
    const auto index = static_cast<int64_t>(i), size = std::ssize(items);
    const Value none(Undefined{"an item beyond the loop"});
    return Value(Dict{{"index", Value(index + 1)},
                      {"index0", Value(index)},
                      {"revindex", Value(size - index)},
                      {"revindex0", Value(size - index - 1)},
                      {"first", Value(i == 0)},
                      {"last", Value(index == size - 1)},
                      {"length", Value(size)},
                      {"previtem", i == 0 ? none : items[i - 1]},
                      {"nextitem", index == size - 1 ? none : items[i + 1]}});
  }

  // --- Expressions ---------------------------------------------------------------------------------------------------

  Value evaluate(const Expression& e, const Scope& scope) {
    const Step step(*this, e.line);
    const auto part = [&](size_t i) { return evaluate(e.parts[i], scope); };
    switch (e.kind) {
      case Kind::kConstant: return e.value;
      case Kind::kName: return variable(e.name, scope);
      case Kind::kAttribute: return attribute_of(part(0), e.name);
      case Kind::kItem: {
        const Value of = part(0);
        return worked(item_of(of, part(1)));
      }
      case Kind::kSlice: {
        const Value of = part(0), begin = part(1), end = part(2);
        return worked(slice_of(of, begin, end, part(3)));
      }
      case Kind::kCall: return call(part(0), arguments(e, scope));
      case Kind::kFilter: {
        const Value of = part(0);
        return worked(apply_filter(e.name, of, arguments(e, scope)));
      }
      case Kind::kTest: {
        const Value of = part(0);
        return Value(apply_test(e.name, of, arguments(e, scope)));
      }
      case Kind::kList: return Value(all(e, scope));
      case Kind::kTuple: return Value(Tuple{all(e, scope)});
      case Kind::kDict: return dict(e, scope);
      case Kind::kNot: return Value(!part(0).truth());
      case Kind::kSign: return operation(e.name, Value(int64_t{0}), part(0));
      case Kind::kAnd: {
        Value left = part(0);
        return left.truth() ? part(1) : left;
      }
      case Kind::kOr: {
        Value left = part(0);
        return left.truth() ? left : part(1);
      }
      case Kind::kConditional: return part(part(1).truth() ? 0 : 2);
      case Kind::kOperation: {
        const Value left = part(0);
        return worked(operation(e.name, left, part(1)));
      }
      case Kind::kJoin: {
        TextBuilder text;
        for (size_t i = 0; i < e.parts.size(); ++i) text.append(part(i).str());
        return worked(Value(text.take()));
      }
      case Kind::kComparison: return Value(comparison(e, scope));
    }
    return {};
  }
  Value variable(const std::string& name, const Scope& scope) {
    if (const Value* found = scope.find(name)) return *found;
    if (is_function(name)) return Value(Callable{.name = name, .self = nullptr});
    return Value(Undefined{name});
  }
  List all(const Expression& e, const Scope& scope) {
    List values;
    for (const Expression& each : e.parts) values.push_back(evaluate(each, scope));
    return values;
  }
  Value dict(const Expression& e, const Scope& scope) {
    Dict items;
    for (size_t i = 0; i + 1 < e.parts.size(); i += 2) {
      const Value key = evaluate(e.parts[i], scope);
      if (key.text() == nullptr) refuse("a key must be a string, got {}", key.type());
      assign(items, *key.text(), evaluate(e.parts[i + 1], scope));
    }
    return Value(std::move(items));
  }
  bool comparison(const Expression& e, const Scope& scope) {
    Value left = evaluate(e.parts[0], scope);
    for (size_t i = 0; i < e.keywords.size(); ++i) {
      Value right = evaluate(e.parts[i + 1], scope);
      if (!holds(e.keywords[i], left, right)) return false;
      left = std::move(right);
    }
    return true;
  }
  static bool holds(std::string_view name, const Value& left, const Value& right) {
    if (name == "in") return contains(right, left);
    if (name == "not in") return !contains(right, left);
    if (name == "==") return left == right;
    if (name == "!=") return !(left == right);
    if (name == "<") return is_less(left, right);
    if (name == ">") return is_less(right, left);
    return name == "<=" ? !is_less(right, left) : !is_less(left, right);
  }

  // The arguments of a call, a filter or a test, which are its last parts.
  Arguments arguments(const Expression& e, const Scope& scope) {
    List positional;
    Dict named;
    for (size_t i = 0; i < e.keywords.size(); ++i) {
      Value value = evaluate(e.parts[e.parts.size() - e.keywords.size() + i], scope);
      if (e.keywords[i].empty()) {
        positional.push_back(std::move(value));
      } else {
        assign(named, e.keywords[i], std::move(value));
      }
    }
    return {std::move(positional), std::move(named)};
  }
  Value call(const Value& called, Arguments arguments) {
    const Callable* callable = called.callable();
    if (callable == nullptr)
      refuse("a call must be of a macro, a method or a function that is computed, got {}", named(called));
    if (callable->macro != nullptr && callable->macro->kind == Statement::Kind::kCall) {
      return call_body(*callable->macro, arguments);
    }
    if (callable->macro != nullptr) return call_macro(*callable->macro, std::move(arguments));
    if (callable->self != nullptr) return worked(call_method(*callable->self, callable->name, std::move(arguments)));
    return worked(call_function(callable->name, std::move(arguments)));
  }
  static std::string named(const Value& value) {
    return value.is_undefined() ? io::printable(std::get<Undefined>(value.content()).name) : std::string(value.type());
  }
  Value call_body(const Statement& block, const Arguments& arguments) {
    arguments.finish();
    const auto found = std::ranges::find(callers_, &block, &std::pair<const Statement*, Scope*>::first);
    if (found == callers_.end()) refuse("caller must be called within its call");
    Scope scope{.outer = found->second};
    return worked(Value(captured(block.body, scope)));
  }
  Value call_macro(const Statement& macro, Arguments arguments) {
    Scope scope{.outer = &root_};
    const size_t required = macro.parameters.size() - macro.defaults.size();
    for (size_t i = 0; i < macro.parameters.size(); ++i) {
      Value given = arguments.take(macro.parameters[i], Value(Undefined{macro.parameters[i]}));
      if (given.is_undefined() && i >= required) given = evaluate(macro.defaults[i - required], scope);
      assign(scope.variables, macro.parameters[i], std::move(given));
    }
    assign(scope.variables, "caller", arguments.take_named("caller"));
    arguments.finish();
    return worked(Value(captured(macro.body, scope)));
  }

  Scope root_;
  std::vector<std::pair<const Statement*, Scope*>> callers_;  // of the calls with a body that have not ended
  TextBuilder out_;
  size_t work_ = 0;
  int depth_ = 0;
  int& line_;
};

}  // namespace

}  // namespace chat

ChatTemplate::ChatTemplate(std::string_view source, std::string where) : source_(source), where_(std::move(where)) {
  constexpr size_t kMaxBytes = size_t{1} << 20;
  int line = 1;
  try {
    if (source.size() > kMaxBytes) chat::refuse("a chat template must have at most 1 MiB, got {} bytes", source.size());
    template_ = std::make_shared<const chat::Template>(chat::read_template(source, line));
  } catch (const chat::Problem& problem) {
    fail(where_, "line {} of the chat template: {}", line, problem.what());
  }
}

std::string ChatTemplate::render(const nlohmann::ordered_json& variables) const {
  int line = 1;
  try {
    const chat::Value values = chat::Value::of_json(variables);
    return chat::Renderer(*values.dict(), line).render(*template_);
  } catch (const chat::Problem& problem) {
    fail(where_, "line {} of the chat template: {}", line, problem.what());
  }
}

}  // namespace rf::text
