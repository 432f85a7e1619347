// Conversion between terms and lists, and tensors of a module that Python keeps (script_terms.h).
#include "script_terms.h"

#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>

#include <map>
#include <utility>

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

// Takes entries out of lists; the remaining entries are unknown.
class Entries {
 public:
  struct Entry {
    at::Tensor tensor;
    int64_t lo = 0, hi = 0;
  };

  explicit Entries(const ScriptTerms& given) {
    if (given.names.size() != given.tensors.size() || given.ranges.size() != 2 * given.tensors.size()) {
      fail("terms", "each tensor must have a name and a range, got {} tensors, {} names and {} numbers",
           given.tensors.size(), given.names.size(), given.ranges.size());
    }
    for (size_t i = 0; i < given.names.size(); ++i) {
      entries_.emplace(given.names[i], Entry{given.tensors[i], given.ranges[2 * i], given.ranges[2 * i + 1]});
    }
  }
  Entry take(const std::string& name) {
    const auto found = entries_.find(name);
    if (found == entries_.end()) return {};
    const Entry entry = found->second;
    entries_.erase(found);
    return entry;
  }
  void finish() const {
    if (!entries_.empty())
      fail("terms", "names must be those of terms, got {}", io::printable(entries_.begin()->first));
  }

 private:
  std::map<std::string, Entry> entries_;
};

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
  const auto add = [&](std::string name, const at::Tensor& tensor, int64_t lo = 0, int64_t hi = 0) {
    tensors.push_back(tensor);
    names.push_back(std::move(name));
    ranges.insert(ranges.end(), {lo, hi});
  };
  const auto add_term = Overloaded{
      [&](const std::string& name, const Rotation& rotation) {
        add(name + "_cos", rotation.cos);
        add(name + "_sin", rotation.sin);
      },
      [&](const std::string& name, const DistanceTable& table) { add(name, table.rows, table.lo, table.hi); },
      [&](const std::string& name, const at::Tensor& numbers) { add(name, numbers); }};
  ops::for_each_term([&](const char* name, const char*, auto member) {
    if ((terms.*member).defined()) add_term(name, terms.*member);
  });
  if (terms.query_positions.defined()) add("positions", terms.query_positions);
  if (terms.key_positions.defined()) add("key_positions", terms.key_positions);
  layout = terms.layout;
  scale = terms.scale;
  return lists;
}

Terms terms_of(const ScriptTerms& given) {
  Entries entries(given);
  Terms terms;
  const auto take =
      Overloaded{[&](const std::string& name, Rotation& rotation) {
                   rotation = {entries.take(name + "_cos").tensor, entries.take(name + "_sin").tensor};
                   if (rotation.cos.defined() != rotation.sin.defined())
                     fail("terms", "{} must have cos and sin, got one", name);
                 },
                 [&](const std::string& name, DistanceTable& table) {
                   const Entries::Entry entry = entries.take(name);
                   table = {entry.tensor, entry.lo, entry.hi};
                 },
                 [&](const std::string& name, at::Tensor& numbers) { numbers = entries.take(name).tensor; }};
  ops::for_each_term([&](const char* name, const char*, auto member) { take(name, terms.*member); });
  terms.query_positions = position_ids(entries.take("positions").tensor);
  terms.key_positions = position_ids(entries.take("key_positions").tensor);
  terms.layout = given.layout;
  terms.scale = given.scale;
  entries.finish();
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
