// Sorts the tensors of a checkpoint out against a model's (loader rules of spec §7.3). Rules in short:
//   a  encoder.embed_positions.weight may be absent (converted checkpoints): computed instead
//   b  cls.predictions.decoder.* may be present although tied: a copy to compare
//   c  embeddings_project.* may be present although E == C: ignored; so is a pooler, which transformers' RoFormer has
//   not d  every other difference of names or shapes is an error
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/model/weights.h"

namespace rf {
namespace {

constexpr std::string_view kPrefix = "roformer.";
constexpr std::string_view kBodyModules[] = {"embeddings.", "embeddings_project.", "encoder.", "pooler."};
constexpr std::string_view kHeadModules[] = {"cls.", "classifier.", "qa_outputs."};

template <size_t N>
bool starts_with_any(std::string_view name, const std::string_view (&modules)[N]) {
  return std::any_of(std::begin(modules), std::end(modules), [name](auto module) { return name.starts_with(module); });
}

std::string shown(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string body_name(std::string_view name) {
  return std::string(name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name);
}

class Matcher {
 public:
  Matcher(const ModelConfig& config, Head head, const std::vector<NamedShape>& file, FreshHead fresh_head)
      : head_(head), file_(file), fresh_head_(fresh_head), specs_(weight_specs(config, head)) {
    for (const WeightSpec& spec : specs_) by_name_.emplace(spec.name, &spec);
  }

  WeightMatch run() {
    choose_prefix();
    for (const NamedShape& tensor : file_) place(tensor);
    find_missing();
    // Loading follows the order of the model, not of the file.
    for (const WeightSpec& spec : specs_) {
      if (loaded_.contains(spec.name)) match_.load.push_back(spec.name);
    }
    return std::move(match_);
  }

 private:
  void choose_prefix() {
    const bool prefixed = std::any_of(file_.begin(), file_.end(),
                                      [](const NamedShape& tensor) { return tensor.name.starts_with(kPrefix); });
    const bool bare = std::any_of(file_.begin(), file_.end(),
                                  [](const NamedShape& tensor) { return starts_with_any(tensor.name, kBodyModules); });
    const bool differs = head_ == Head::kNone ? prefixed && !bare : bare && !prefixed;
    if (differs) match_.strip_or_add_prefix = kPrefix;
  }

  // The model's name of a tensor of the file.
  std::string model_name(const std::string& name) const {
    if (match_.strip_or_add_prefix.empty()) return name;
    if (head_ == Head::kNone) return body_name(name);
    return starts_with_any(name, kBodyModules) ? std::string(kPrefix) + name : name;
  }

  void place(const NamedShape& tensor) {
    const std::string name = model_name(tensor.name);
    if (!seen_.insert(name).second)
      fail("weights", "tensor names must be unique, got {} twice", io::printable(tensor.name));
    if (const auto found = by_name_.find(name); found != by_name_.end()) {
      check_shape(tensor, found->second->shape);
      loaded_.insert(name);
    } else if (is_tied_copy(name)) {
      check_shape(tensor, by_name_.at(tied_source(name))->shape);
      match_.tied_copies.push_back(tensor.name);
    } else if (is_ignored(name)) {
      match_.ignored.push_back(tensor.name);
    } else {
      fail("weights", "tensors must be those of {}, got {} of shape {}{}", architecture_of_head(head_),
           io::printable(tensor.name), shown(tensor.shape), hint(name));
    }
  }

  static void check_shape(const NamedShape& tensor, const std::vector<int64_t>& expected) {
    if (tensor.shape != expected) {
      fail("weights", "{} must have the shape {} by the config, got {}", io::printable(tensor.name), shown(expected),
           shown(tensor.shape));
    }
  }

  // Untied decoder tensors are among the specs and do not come here.
  bool is_tied_copy(const std::string& name) const {
    return (head_ == Head::kMaskedLm || head_ == Head::kCausalLm) && !tied_source(name).empty();
  }

  bool is_ignored(const std::string& name) const {
    const std::string body = body_name(name);
    if (body == "embeddings_project.weight" || body == "embeddings_project.bias") return true;  // E == C, or a spec
    if (body == "pooler.dense.weight" || body == "pooler.dense.bias") return true;
    return (head_ == Head::kNone || fresh_head_ == FreshHead::kAllowed) && starts_with_any(name, kHeadModules);
  }

  std::string hint(const std::string& name) const {
    if (name.ends_with(".gamma") || name.ends_with(".beta")) {
      return "; gamma and beta are old names: rename them to weight and bias";
    }
    if (starts_with_any(name, kHeadModules)) {
      return "; the file holds another head: ask for that one, for none, or allow a fresh head";
    }
    return "";
  }

  void find_missing() {
    const auto of_head = [](const WeightSpec& spec) { return starts_with_any(spec.name, kHeadModules); };
    const bool head_in_file = std::any_of(specs_.begin(), specs_.end(), [&](const WeightSpec& spec) {
      return of_head(spec) && loaded_.contains(spec.name);
    });
    std::vector<std::string> missing;
    for (const WeightSpec& spec : specs_) {
      if (loaded_.contains(spec.name)) continue;
      if (spec.role == WeightRole::kTable) {
        match_.computed.push_back(spec.name);
      } else if (of_head(spec) && !head_in_file && fresh_head_ == FreshHead::kAllowed) {
        match_.fresh.push_back(spec.name);
      } else {
        missing.push_back(spec.name);
      }
    }
    if (missing.empty()) return;
    fail("weights", "all tensors of {} must be in the file, got {} missing, the first {} of shape {}",
         architecture_of_head(head_), missing.size(), io::printable(missing[0]), shown(by_name_.at(missing[0])->shape));
  }

  const Head head_;
  const std::vector<NamedShape>& file_;
  const FreshHead fresh_head_;
  const std::vector<WeightSpec> specs_;
  std::map<std::string, const WeightSpec*> by_name_;
  std::set<std::string> seen_, loaded_;  // names as in the model
  WeightMatch match_;
};

}  // namespace

WeightMatch match_weights(const ModelConfig& config, Head head, const std::vector<NamedShape>& file,
                          FreshHead fresh_head) {
  return Matcher(config, head, file, fresh_head).run();
}

std::string WeightMatch::file_name(const std::string& spec_name) const {
  if (strip_or_add_prefix.empty()) return spec_name;
  if (spec_name.starts_with(kPrefix)) return body_name(spec_name);
  return starts_with_any(spec_name, kBodyModules) ? strip_or_add_prefix + spec_name : spec_name;
}

}  // namespace rf
