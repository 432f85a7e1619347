// Terms to a dictionary and back (script_terms.h).
#include "script_terms.h"

#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <map>

#include "rf/io/error.h"
#include "rf/io/printable.h"

namespace rf::nn {

namespace {

using ops::DistanceTable;
using ops::Rotation;
using ops::Terms;

// Every member of Terms by its name.
template <typename T>
struct Member {
  const char* name;
  T Terms::*at;
};
constexpr Member<Rotation> kRotations[] = {{"query", &Terms::query}, {"key", &Terms::key}, {"value", &Terms::value}};
constexpr Member<DistanceTable> kTables[] = {{"key_table", &Terms::key_table},
                                             {"query_table", &Terms::query_table},
                                             {"value_table", &Terms::value_table},
                                             {"bias", &Terms::bias},
                                             {"gate", &Terms::gate}};
constexpr Member<at::Tensor> kTensors[] = {{"content_bias", &Terms::content_bias_HD},
                                           {"position_bias", &Terms::position_bias_HD},
                                           {"position_query", &Terms::position_query_HPD},
                                           {"position_key", &Terms::position_key_HPD},
                                           {"reset_row", &Terms::reset_row_H},
                                           {"reset_col", &Terms::reset_col_H}};

// Takes entries out of a dictionary; what is left was known to nobody.
class Entries {
 public:
  explicit Entries(const TensorDict& dict) {
    for (const auto& entry : dict) entries_.emplace(entry.key(), entry.value());
  }
  at::Tensor take(const std::string& name) {
    const auto found = entries_.find(name);
    if (found == entries_.end()) return {};
    const at::Tensor value = found->second;
    entries_.erase(found);
    return value;
  }
  void finish() const {
    if (!entries_.empty())
      fail("terms", "names must be those of terms, got {}", io::printable(entries_.begin()->first));
  }

 private:
  std::map<std::string, at::Tensor> entries_;
};

}  // namespace

TensorDict to_dict(const Terms& terms) {
  TensorDict dict;
  for (const auto& [name, at] : kRotations) {
    if (!(terms.*at).defined()) continue;
    dict.insert(std::string(name) + "_cos", (terms.*at).cos);
    dict.insert(std::string(name) + "_sin", (terms.*at).sin);
  }
  for (const auto& [name, at] : kTables) {
    const DistanceTable& table = terms.*at;
    if (!table.defined()) continue;
    dict.insert(name, table.rows);
    dict.insert(std::string(name) + "_window", at::tensor({table.lo, table.hi}, at::kLong));
  }
  for (const auto& [name, at] : kTensors) {
    if ((terms.*at).defined()) dict.insert(name, terms.*at);
  }
  if (terms.layout == "halves") dict.insert("halves", at::full({}, 1, at::kLong));
  if (terms.scale) dict.insert("scale", at::scalar_tensor(*terms.scale, at::kDouble));
  return dict;
}

Terms terms_of_dict(const TensorDict& dict) {
  Entries entries(dict);
  Terms terms;
  for (const auto& [name, at] : kRotations) {
    Rotation& rotation = terms.*at;
    rotation.cos = entries.take(std::string(name) + "_cos");
    rotation.sin = entries.take(std::string(name) + "_sin");
    if (rotation.cos.defined() != rotation.sin.defined()) fail("terms", "{} must have cos and sin, got one", name);
  }
  for (const auto& [name, at] : kTables) {
    DistanceTable& table = terms.*at;
    table.rows = entries.take(name);
    const at::Tensor window = entries.take(std::string(name) + "_window");
    if (table.rows.defined() != window.defined()) fail("terms", "{} must have rows and a window, got one", name);
    if (!window.defined()) continue;
    if (window.numel() != 2) fail("terms", "the window of {} must be (lo, hi), got {} numbers", name, window.numel());
    table.lo = window[0].item<int64_t>();
    table.hi = window[1].item<int64_t>();
  }
  for (const auto& [name, at] : kTensors) terms.*at = entries.take(name);
  if (entries.take("halves").defined()) terms.layout = "halves";
  if (const at::Tensor scale = entries.take("scale"); scale.defined()) terms.scale = scale.item<double>();
  entries.finish();
  return terms;
}

}  // namespace rf::nn
