// The statements and expressions of a chat template.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat_template/value.h"

namespace rf::text::chat {

struct Expression {
  enum class Kind {
    kConstant,     // value
    kName,         // name
    kAttribute,    // parts[0].name
    kItem,         // parts[0][parts[1]]
    kSlice,        // parts[0][parts[1]:parts[2]:parts[3]], absent ones constants none
    kCall,         // parts[0](parts[1], .., keywords=..)
    kFilter,       // parts[0] | name(parts[1], .., keywords=..)
    kTest,         // parts[0] is name(parts[1], ..)
    kList,         // [parts]
    kTuple,        // (parts)
    kDict,         // {parts[0]: parts[1], ..}
    kNot,          // not parts[0]
    kSign,         // name parts[0]: + or -
    kAnd,          // parts[0] and parts[1]
    kOr,           // parts[0] or parts[1]
    kConditional,  // parts[0] if parts[1] else parts[2]
    kOperation,    // parts[0] name parts[1]: + - * / // % **
    kJoin,         // parts[0] ~ parts[1] ~ ..
    kComparison,   // parts[0] keywords[0] parts[1] keywords[1] ..
  };
  Kind kind = Kind::kConstant;
  int line = 1;
  int depth = 1;  // of the tree
  std::string name{};
  Value value{};
  std::vector<Expression> parts{};
  std::vector<std::string> keywords{};  // of a call's last parts; "" for positional arguments before them
};

struct Target {
  std::string name, field;  // field: of a namespace; "": of a variable
};

struct Statement {
  enum class Kind {
    kText,     // text
    kOutput,   // {{ expression }}
    kFor,      // for targets in expression [if condition]: body, else: otherwise
    kIf,       // if expression: body, else: otherwise
    kSet,      // set targets = expression
    kCapture,  // set targets: body as a text, with filter applied
    kFilter,   // filter: body
    kMacro,    // macro text(parameters): body; defaults are the values of the last parameters
    kCall,     // call expression, where caller() is body
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kText;
  int line = 1;
  std::string text{};
  std::vector<Target> targets{};
  Expression expression{};  // of kFilter and kCapture: over the name kBody
  std::optional<Expression> condition{};
  std::vector<std::string> parameters{};
  std::vector<Expression> defaults{};
  std::vector<Statement> body{}, otherwise{};
};

inline constexpr std::string_view kBody = "(body)";  // names the text of a body in the filters over it

struct Template {
  std::vector<Statement> body;
};

// Throws Problem; `line` is then where.
Template read_template(std::string_view source, int& line);

}  // namespace rf::text::chat
