// Conversion between terms and lists, and tensors of a module that Python keeps (script_terms.h).
#include "script_terms.h"

#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <utility>

#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/nn/positions.h"

namespace rf::nn {

namespace {

using ops::Terms;

// [1 or B, T], as encodings give them; for positions on several axes the highest axis, as in attention.
at::Tensor position_ids(const at::Tensor& given) {
  const bool are_ids = given.defined() && given.scalar_type() == at::kLong && given.dim() == 2;
  return are_ids || !given.defined() ? given : token_positions(given, "query").ids;
}

}  // namespace

TensorDict named(const torch::OrderedDict<std::string, at::Tensor>& tensors) {
  TensorDict dict;
  for (const auto& item : tensors) dict.insert(item.key(), item.value());
  return dict;
}

TermLists lists_of(const Terms& terms) {
  TermLists lists;
  auto& [tensors, names, ranges, layout, scale] = lists;
  const auto add = [&](const char* name, const at::Tensor& tensor, const ops::DistanceTable* table) {
    if (!tensor.defined()) return;
    tensors.push_back(tensor);
    names.emplace_back(name);
    ranges.insert(ranges.end(), {table == nullptr ? 0 : table->lo, table == nullptr ? 0 : table->hi});
  };
  const auto places = ops::tensors_of(terms);
  const auto tables = ops::tables_of(terms);
  for (size_t i = 0; i < ops::kTerms; ++i) add(ops::kTermNames[i], *places[i], tables[i]);
  add("positions", terms.query_positions, nullptr);
  add("key_positions", terms.key_positions, nullptr);
  layout = terms.layout;
  scale = terms.scale;
  return lists;
}

Terms terms_of(const ScriptTerms& given) {
  if (given.names.size() != given.tensors.size() || given.ranges.size() != 2 * given.tensors.size()) {
    fail("terms", "each tensor must have a name and a range, got {} tensors, {} names and {} numbers",
         given.tensors.size(), given.names.size(), given.ranges.size());
  }
  Terms terms;
  const auto places = ops::tensors_of(terms);
  const auto tables = ops::tables_of(terms);
  for (size_t i = 0; i < given.names.size(); ++i) {
    const std::string& name = given.names[i];
    if (name == "positions" || name == "key_positions") {
      (name == "positions" ? terms.query_positions : terms.key_positions) = position_ids(given.tensors[i]);
      continue;
    }
    const size_t place = static_cast<size_t>(std::ranges::find(ops::kTermNames, name) - ops::kTermNames.begin());
    if (place == ops::kTerms) fail("terms", "names must be those of terms, got {}", io::printable(name));
    *places[place] = given.tensors[i];
    if (tables[place] != nullptr) tables[place]->lo = given.ranges[2 * i], tables[place]->hi = given.ranges[2 * i + 1];
  }
  for (const auto& [rotation, name] :
       {std::pair{&terms.query, "query"}, {&terms.key, "key"}, {&terms.value, "value"}}) {
    if (rotation->cos.defined() != rotation->sin.defined()) fail("terms", "{} must have cos and sin, got one", name);
  }
  terms.layout = given.layout;
  terms.scale = given.scale;
  return terms;
}

ScriptTensors::ScriptTensors(const torch::nn::Module& module, const char* where)
    : where_(where), parameters_(named(module.named_parameters())), buffers_(named(module.named_buffers())) {
  for (const TensorDict* tensors : {&parameters_, &buffers_}) {
    for (const auto& entry : *tensors) {
      names_.push_back(entry.key());
      registered_.push_back(entry.value());
    }
  }
}

void ScriptTensors::release() const {
  for (const at::Tensor& tensor : registered_) {
    tensor.set_data(at::zeros({}, tensor.options().device(at::kCPU)).expand(tensor.sizes()));
  }
}

void ScriptTensors::check(const std::vector<at::Tensor>& given) const {
  if (given.size() != registered_.size()) {
    fail(where_, "a call must have the {} parameters and buffers of the module, got {}", registered_.size(),
         given.size());
  }
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i].sym_sizes() != registered_[i].sym_sizes()) {
      fail(where_, "{} must keep its shape {}, got {}", names_[i], c10::str(registered_[i].sym_sizes()),
           c10::str(given[i].sym_sizes()));
    }
    if (given[i].is_meta()) {
      fail(where_, "{} must have values, got a tensor on the device meta. Hint: load_state_dict(.., assign=True)",
           names_[i]);
    }
  }
}

ParameterScope ScriptTensors::in_place(const std::vector<at::Tensor>& given) const {
  check(given);
  return {registered_, given};
}

void ScriptTensors::take(const std::vector<at::Tensor>& given) const {
  check(given);
  for (size_t i = 0; i < given.size(); ++i) registered_[i].set_data(given[i].detach().to(at::kCPU));
}

}  // namespace rf::nn
