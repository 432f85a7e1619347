// Tokenizer: texts and pairs to rows of numbers, and back. Rows are concatenated arrays with the index
// where each row begins; the package turns them into lists or two-dimensional arrays.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "bindings.h"
#include "rf/io/processors.h"
#include "rf/io/warning.h"
#include "rf/text/batch.h"
#include "rf/text/chat_template.h"

namespace rf::python {

namespace nb = nanobind;

namespace {

constexpr const char* kWhere = "tokenize";

struct RowArrays {
  std::vector<int64_t> ids, types, mask, text_index, offsets, begins{0}, samples;

  void add(const text::Row& row) {
    ids.insert(ids.end(), row.tokens.ids.begin(), row.tokens.ids.end());
    types.insert(types.end(), row.types.begin(), row.types.end());
    mask.insert(mask.end(), row.mask.begin(), row.mask.end());
    text_index.insert(text_index.end(), row.text_index.begin(), row.text_index.end());
    for (size_t i = 0; i < row.size(); ++i) {
      offsets.push_back(row.tokens.char_begin[i]);
      offsets.push_back(row.tokens.char_end[i]);
    }
    begins.push_back(static_cast<int64_t>(ids.size()));
    samples.push_back(row.sample);
  }

  nb::dict to_dict() && {
    const size_t tokens = ids.size();
    nb::dict arrays;
    arrays["ids"] = array_of(std::move(ids));
    arrays["types"] = array_of(std::move(types));
    arrays["mask"] = array_of(std::move(mask));
    arrays["text_index"] = array_of(std::move(text_index));
    arrays["offsets"] = array_of(std::move(offsets), {tokens, size_t{2}});
    arrays["begins"] = array_of(std::move(begins));
    arrays["samples"] = array_of(std::move(samples));
    return arrays;
  }
};

// The number of threads for these texts: starting one takes as long as tokenizing some kilobytes.
int threads_for(std::span<const text::TextPair> samples) {
  constexpr size_t kBytesPerThread = 65536;
  size_t bytes = 0;
  for (const text::TextPair& each : samples) bytes += each.first.size() + each.second.value_or("").size();
  return static_cast<int>(std::clamp(bytes / kBytesPerThread, size_t{1}, size_t(io::available_processors())));
}

text::Truncation truncation_of(const std::string& name) {
  return name == "longest_first" ? text::Truncation::kLongestFirst
         : name == "only_first"  ? text::Truncation::kOnlyFirst
         : name == "only_second" ? text::Truncation::kOnlySecond
                                 : text::Truncation::kNone;
}

text::Padding padding_of(const std::string& name) {
  return name == "longest"      ? text::Padding::kLongest
         : name == "max_length" ? text::Padding::kMaxLength
                                : text::Padding::kNone;
}

text::Side side_of(const std::string& name) { return name == "left" ? text::Side::kLeft : text::Side::kRight; }

std::string name_of(text::Side side) { return side == text::Side::kLeft ? "left" : "right"; }

class Tokenizer {
 public:
  Tokenizer(const std::string& model_dir, const std::string& dictionary,
            const std::vector<std::string>& user_dictionaries)
      : model_dir_(model_dir),
        tokenizer_(load(model_dir, dictionary, user_dictionaries)),
        settings_(text::read_row_settings(model_dir)) {}

  nb::dict rows(const nb::list& first, const std::optional<nb::list>& second, bool add_specials,
                const std::string& truncation, const std::string& truncation_side, bool overflow, int64_t stride,
                int64_t max_length, const std::string& padding, const std::string& padding_side,
                int64_t pad_to_multiple_of) const {
    const Texts texts(first, kWhere);
    std::optional<Texts> pairs;
    if (second) pairs.emplace(*second, kWhere);
    std::vector<text::TextPair> samples;
    for (size_t i = 0; i < texts.size(); ++i) {
      samples.push_back({texts.views()[i]});
      if (pairs) samples.back().second = pairs->views()[i];
    }
    const text::BatchOptions options{
        .add_specials = add_specials ? text::AddSpecials::kYes : text::AddSpecials::kNo,
        .truncation = truncation_of(truncation),
        .truncation_side = side_of(truncation_side),
        .overflow = overflow ? text::Overflow::kRows : text::Overflow::kDropped,
        .stride = stride,
        .max_length = max_length,
        .padding = padding_of(padding),
        .padding_side = side_of(padding_side),
        .pad_to_multiple_of = pad_to_multiple_of,
        .threads = threads_for(samples),
    };
    RowArrays arrays;
    {
      const nb::gil_scoped_release release;
      on_open_model([&] {
        text::BatchEncoder encoder(tokenizer_, options);
        for (const text::Row& row : encoder.encode(samples)) arrays.add(row);
      });
    }
    return std::move(arrays).to_dict();
  }

  std::string decode(const std::vector<int64_t>& given, bool skip_specials) const {
    const nb::gil_scoped_release release;
    return on_open_model([&] {
      std::vector<int32_t> ids;
      for (const int64_t id : given) {
        const int64_t size = tokenizer_.vocabulary().size();
        if (id < 0 || id >= size) fail<ArgumentError>(kWhere, "an id must be in 0..{}, got {}", size - 1, id);
        ids.push_back(static_cast<int32_t>(id));
      }
      return tokenizer_.decode(ids, skip_specials ? text::SkipSpecials::kYes : text::SkipSpecials::kNo);
    });
  }

  // chat_template: the template, or the name of one of the model's. variables: JSON that overrides the model's
  // variables and has `messages`, a list of objects.
  std::string render_chat(const std::string& chat_template, const std::string& variables) const {
    const nb::gil_scoped_release release;
    const bool is_template = !std::ranges::all_of(
        chat_template, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; });
    const text::ChatTemplate own =
        is_template ? text::ChatTemplate(chat_template, kWhere) : template_of_model(chat_template);
    auto all = text::chat_variables(tokenizer_, nlohmann::ordered_json::array(), text::GenerationPrompt::kNone);
    all.update(nlohmann::ordered_json::parse(variables));
    std::ranges::for_each(all["messages"], text::complete_message);
    return own.render(all);
  }

  std::string token(int64_t id) const {
    return on_open_model([&]() -> std::string { return tokenizer_.vocabulary().token(id); });
  }
  int64_t find(const std::string& token) const { return tokenizer_.vocabulary().find(token); }
  int64_t size() const { return tokenizer_.vocabulary().size(); }
  int64_t model_size() const { return tokenizer_.vocabulary().model_size(); }

  // By the key of tokenizer_config.json: the token, or None.
  nb::dict special_tokens() const {
    nb::dict tokens;
    for (const text::SpecialRole role : text::kSpecialRoles) {
      const int32_t id = id_of(tokenizer_.vocabulary().special(), role);
      const std::string key(text::config_key(role));
      tokens[key.c_str()] = id < 0 ? nb::none() : nb::cast(tokenizer_.vocabulary().token(id));
    }
    return tokens;
  }

  std::optional<int64_t> model_max_length() const { return settings_.max_length; }
  std::string truncation_side() const { return name_of(settings_.truncation_side); }
  std::string padding_side() const { return name_of(settings_.padding_side); }
  std::string pipeline() const { return std::string(text::name(tokenizer_.options().pipeline)); }
  void save(const std::string& model_dir) const { tokenizer_.save(model_dir); }

 private:
  static text::Tokenizer load(const std::string& model_dir, const std::string& dictionary,
                              const std::vector<std::string>& user_dictionaries) {
    const nb::gil_scoped_release release;
    const io::WarningScope scope(give_warning);
    return text::Tokenizer::load(model_dir, {.dictionary = dictionary, .user_dictionaries = user_dictionaries});
  }

  // Read once.
  text::ChatTemplate template_of_model(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto known = templates_.find(name);
    if (known != templates_.end()) return known->second;
    const std::optional<text::ChatTemplate> read = text::read_chat_template(model_dir_, name);
    if (!read) fail<ArgumentError>(kWhere, "{} must have the chat template {}, got none", model_dir_, name);
    return templates_.emplace(name, *read).first->second;
  }

  std::string model_dir_;
  mutable std::mutex mutex_;  // of the next
  mutable std::map<std::string, text::ChatTemplate> templates_;
  text::Tokenizer tokenizer_;
  text::RowSettings settings_;
};

}  // namespace

void bind_tokenizer(nb::module_& module) {
  nb::class_<Tokenizer>(module, "Tokenizer")
      .def(nb::init<const std::string&, const std::string&, const std::vector<std::string>&>(), nb::arg("model_dir"),
           nb::arg("dictionary"), nb::arg("user_dictionaries"))
      .def("rows", &Tokenizer::rows, nb::arg("first"), nb::arg("second").none(), nb::kw_only(), nb::arg("add_specials"),
           nb::arg("truncation"), nb::arg("truncation_side"), nb::arg("overflow"), nb::arg("stride"),
           nb::arg("max_length"), nb::arg("padding"), nb::arg("padding_side"), nb::arg("pad_to_multiple_of"))
      .def("decode", &Tokenizer::decode, nb::arg("ids"), nb::arg("skip_specials"))
      .def("render_chat", &Tokenizer::render_chat, nb::arg("chat_template"), nb::arg("variables"))
      .def("token", &Tokenizer::token, nb::arg("id"))
      .def("find", &Tokenizer::find, nb::arg("token"))
      .def("size", &Tokenizer::size)
      .def("model_size", &Tokenizer::model_size)
      .def("special_tokens", &Tokenizer::special_tokens)
      .def("model_max_length", &Tokenizer::model_max_length)
      .def("truncation_side", &Tokenizer::truncation_side)
      .def("padding_side", &Tokenizer::padding_side)
      .def("pipeline", &Tokenizer::pipeline)
      .def("save", &Tokenizer::save, nb::arg("model_dir"));
}

}  // namespace rf::python
