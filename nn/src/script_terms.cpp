// Terms to a dictionary and back (script_terms.h).
#include "script_terms.h"

#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <map>

#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/nn/positions.h"

namespace rf::nn {

namespace {

using ops::DistanceTable;
using ops::Rotation;
using ops::Terms;

// One function for each kind of term.
template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};

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

// [1 or B, T], as encodings give them; of positions on several axes the highest, as attention has them.
at::Tensor position_ids(const at::Tensor& given) {
  const bool are_ids = given.defined() && given.scalar_type() == at::kLong && given.dim() == 2;
  return are_ids || !given.defined() ? given : make_positions(given).query.ids;
}

}  // namespace

TensorDict named(const torch::OrderedDict<std::string, at::Tensor>& tensors) {
  TensorDict dict;
  for (const auto& item : tensors) dict.insert(item.key(), item.value());
  return dict;
}

TensorDict to_dict(const Terms& terms) {
  TensorDict dict;
  const auto insert =
      Overloaded{[&](const std::string& name, const Rotation& rotation) {
                   dict.insert(name + "_cos", rotation.cos);
                   dict.insert(name + "_sin", rotation.sin);
                 },
                 [&](const std::string& name, const DistanceTable& table) {
                   dict.insert(name, table.rows);
                   dict.insert(name + "_window", at::tensor({table.lo, table.hi}, at::kLong));
                 },
                 [&](const std::string& name, const at::Tensor& numbers) { dict.insert(name, numbers); }};
  ops::for_each_term([&](const char* name, const char*, auto member) {
    if ((terms.*member).defined()) insert(name, terms.*member);
  });
  if (terms.query_positions.defined()) dict.insert("positions", terms.query_positions);
  if (terms.key_positions.defined()) dict.insert("key_positions", terms.key_positions);
  if (terms.layout == "halves") dict.insert("halves", at::full({}, 1, at::kLong));
  if (terms.scale) dict.insert("scale", at::scalar_tensor(*terms.scale, at::kDouble));
  return dict;
}

Terms terms_of_dict(const TensorDict& dict) {
  Entries entries(dict);
  Terms terms;
  const auto take =
      Overloaded{[&](const std::string& name, Rotation& rotation) {
                   rotation = {entries.take(name + "_cos"), entries.take(name + "_sin")};
                   if (rotation.cos.defined() != rotation.sin.defined())
                     fail("terms", "{} must have cos and sin, got one", name);
                 },
                 [&](const std::string& name, DistanceTable& table) {
                   table.rows = entries.take(name);
                   const at::Tensor window = entries.take(name + "_window");
                   if (table.rows.defined() != window.defined())
                     fail("terms", "{} must have rows and a window, got one", name);
                   if (!window.defined()) return;
                   if (window.numel() != 2) {
                     fail("terms", "the window of {} must be (lo, hi), got {} numbers", name, window.numel());
                   }
                   table.lo = window[0].item<int64_t>();
                   table.hi = window[1].item<int64_t>();
                 },
                 [&](const std::string& name, at::Tensor& numbers) { numbers = entries.take(name); }};
  ops::for_each_term([&](const char* name, const char*, auto member) { take(name, terms.*member); });
  terms.query_positions = position_ids(entries.take("positions"));
  terms.key_positions = position_ids(entries.take("key_positions"));
  if (entries.take("halves").defined()) terms.layout = "halves";
  if (const at::Tensor scale = entries.take("scale"); scale.defined()) terms.scale = scale.item<double>();
  entries.finish();
  return terms;
}

}  // namespace rf::nn
