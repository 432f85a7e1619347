// The chat template of a reranker, which makes one text of a query, a document and a prompt: the part of Jinja that
// such templates need. It consists of text and of the contents of messages by their role, as in
//   {{ messages | selectattr("role", "eq", "query") | map(attribute="content") | first | default("none") | trim }}
// or the name of a variable that {% set name = .. %} defines so. Spaces are cut as transformers has Jinja cut them
// (trim_blocks, lstrip_blocks).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rf::tasks {

class PairTemplate {
 public:
  // Throws Error for a template with another expression; where: its file.
  PairTemplate(std::string_view source, const std::string& where);
  // prompt: the content of the message of the role "system"; "": without it.
  std::string render(std::string_view prompt, std::string_view query, std::string_view document) const;

 private:
  struct Part {
    std::string text;                      // a constant, where there is no role
    std::string role;                      // of the message whose content this is
    std::optional<std::string> otherwise;  // without such a message
    bool trimmed = false;
  };
  Part expression(std::string_view source, const std::string& where) const;

  std::vector<Part> parts_;
  std::map<std::string, Part, std::less<>> variables_;
};

}  // namespace rf::tasks
