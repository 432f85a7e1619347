// The targets and their table.
#include "rf/fuzz/targets.h"

#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "http_front.h"
#include "rf/data/reader.h"
#include "rf/data/records.h"
#include "rf/engine/embedder.h"
#include "rf/engine/model.h"
#include "rf/engine/precision.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/safetensors.h"
#include "rf/model/config.h"
#include "rf/model/rotary_report.h"
#include "rf/model/weights.h"
#include "rf/tasks/cross_encoder.h"
#include "rf/tasks/json_schema.h"
#include "rf/text/chat_template.h"
#include "rf/text/tokenizer.h"

namespace rf::fuzz {

namespace {

namespace fs = std::filesystem;

// Ends the process if a promise is broken.
void check(bool holds) {
  if (!holds) std::abort();
}

// Removes and returns the bytes up to the mark between sections, and removes the mark; without a mark, all bytes.
std::string_view take_section(std::string_view& bytes) {
  constexpr std::string_view kMark = "\n=====\n";
  const size_t end = bytes.find(kMark);
  const std::string_view section = bytes.substr(0, end);
  bytes = end == std::string_view::npos ? std::string_view() : bytes.substr(end + kMark.size());
  return section;
}

// A directory in memory, if the system has such a file system, whose files are replaced from run to run.
class MemoryDirectory {
 public:
  MemoryDirectory() {
    std::error_code error;
    const fs::path memory = "/dev/shm";
    path_ = ((fs::is_directory(memory, error) ? memory : fs::temp_directory_path()) / "rf_fuzz_XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make " + path_);
  }
  ~MemoryDirectory() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  MemoryDirectory(const MemoryDirectory&) = delete;
  MemoryDirectory& operator=(const MemoryDirectory&) = delete;

  const std::string& path() const { return path_; }
  // Replaces the file, or removes it if `bytes` is empty.
  void put(const std::string& name, std::string_view bytes) const {
    const fs::path path = fs::path(path_) / name;
    fs::remove(path);
    fs::create_directories(path.parent_path());
    if (!bytes.empty()) std::ofstream(path, std::ios::binary) << bytes;
  }
  // Sections are files of these names.
  void put_sections(std::span<const std::string_view> names, std::string_view bytes) const {
    for (const std::string_view name : names) put(std::string(name), take_section(bytes));
  }

 private:
  std::string path_;
};

// Runs what may refuse the bytes.
template <typename Read, typename... Args>
void may_refuse(const Read& read, const Args&... args) {
  try {
    read(args...);
  } catch (const Error&) {
  }
}

// A model that opens computes.
void compute(const std::string& path) {
  const engine::Model model(path, {.token_budget = 3});
  const std::vector<int32_t> ids(5);
  const std::vector<int64_t> offsets = {0, 1, 5};
  const engine::Tokens tokens = {.ids = ids, .offsets = offsets};
  std::vector<float> hidden(ids.size() * static_cast<size_t>(model.info().hidden_size));
  model.hidden(tokens, hidden.data());
  if (model.info().head == Head{}) return;
  const size_t rows = model.logits_of_tokens() ? ids.size() : offsets.size() - 1;
  std::vector<float> logits(rows * static_cast<size_t>(model.logits_per_row()));
  model.logits(tokens, logits.data());
}

// config.json: a configuration that was read must be written and read again to the same value.
void config_json(std::string_view bytes) {
  const ModelConfig config = parse_config(io::parse_json(bytes, "config.json"));
  check(parse_config(to_json(config)) == config);
  if (config.num_hidden_layers <= 4) weight_specs(config, config.head());
}

// model.safetensors: all listed data can be read.
void safetensors(std::string_view bytes) {
  static const MemoryDirectory directory;
  directory.put("model.safetensors", bytes);
  const io::SafetensorsFile file(directory.path() + "/model.safetensors");
  size_t data = 0;
  unsigned sum = 0;
  for (const io::TensorView& tensor : file.tensors()) {
    check(file.find(tensor.name) == &tensor);
    for (const std::byte byte : tensor.data) sum += std::to_integer<unsigned>(byte);
    data += tensor.data.size();
  }
  check(data <= bytes.size() && sum <= 255 * data);
}

// Sections: the files of a model.
void model_directory(std::string_view bytes) {
  static const MemoryDirectory directory;
  constexpr std::string_view kFiles[] = {"config.json", "position_terms.safetensors", "model.safetensors"};
  directory.put_sections(kFiles, bytes);
  compute(directory.path());
}

constexpr std::string_view kVocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n##b\n.\n";

// A small encoder with this head and a tokenizer.
void put_encoder(const MemoryDirectory& directory, const std::string& architecture) {
  nlohmann::json object = io::parse_json(
      R"({"model_type": "bert", "vocab_size": 9, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2,
          "intermediate_size": 4, "max_position_embeddings": 16, "id2label": {"0": "LABEL_0"}})",
      "config.json");
  object["architectures"] = nlohmann::json::array({architecture});
  const ModelConfig config = parse_config(object);
  static const std::vector<std::byte> zeros(1024);
  std::vector<io::TensorView> tensors;
  for (const WeightSpec& spec : weight_specs(config, config.head())) {
    size_t bytes = sizeof(float);
    for (const int64_t extent : spec.shape) bytes *= static_cast<size_t>(extent);
    tensors.push_back({spec.name, io::DType::kF32, spec.shape, std::span(zeros).first(bytes)});
  }
  io::write_safetensors(directory.path() + "/model.safetensors", tensors, {});
  directory.put("config.json", object.dump());
  directory.put("vocab.txt", kVocabulary);
  directory.put("1/vocab.txt", kVocabulary);
}

constexpr std::string_view kModuleFiles[] = {"modules.json",
                                             "config_sentence_transformers.json",
                                             "sentence_bert_config.json",
                                             "router_config.json",
                                             "artifact.metadata",
                                             "1/config.json",
                                             "1/model.safetensors",
                                             "2/config.json",
                                             "2/model.safetensors"};

void embed(const std::string& path, engine::VectorKind kind, engine::TextRole role) {
  const engine::Embedder embedder(path, {.vectors = kind, .role = role});
  const std::string_view texts[] = {"a b.", "", "ab"};
  check(embedder.vectors(texts).size() == std::size(texts));
}

// Sections: the files of sentence-transformers beside an encoder.
void sentence_modules(std::string_view bytes) {
  static const MemoryDirectory encoder, masked_lm;
  static const bool made = (put_encoder(encoder, "BertModel"), put_encoder(masked_lm, "BertForMaskedLM"), true);
  encoder.put_sections(kModuleFiles, bytes);
  check(made);
  const engine::VectorKind kind = engine::vectors_of(encoder.path());
  const bool is_sparse = kind == engine::VectorKind::kSparse;
  if (is_sparse) masked_lm.put_sections(kModuleFiles, bytes);
  for (const engine::TextRole role : {engine::TextRole::kNone, engine::TextRole::kQuery})
    may_refuse(embed, (is_sparse ? masked_lm : encoder).path(), kind, role);
}

// The same, beside a model of pairs.
void cross_encoder(std::string_view bytes) {
  static const MemoryDirectory directory;
  static const bool made = (put_encoder(directory, "BertForSequenceClassification"), true);
  directory.put_sections(kModuleFiles, bytes);
  check(made);
  const tasks::CrossEncoder model({.model_dir = directory.path(), .note = {}});
  const text::TextPair pairs[] = {{"a b.", "b"}, {"", "ab"}};
  check(model.scores(pairs).size() == std::size(pairs) * model.info().labels.size());
}

// A schema, and a text: one that it allows is JSON.
void json_schema(std::string_view bytes) {
  const auto schema = nlohmann::ordered_json::parse(take_section(bytes), nullptr, /*allow_exceptions=*/false);
  if (!schema.is_discarded() && tasks::JsonSchema(schema).accepts(bytes)) check(nlohmann::json::accept(bytes));
}

void chat_template(std::string_view bytes) {
  const nlohmann::ordered_json messages = {{{"role", "user"}, {"content", " a\n\u00e9"}},
                                           {{"role", "tool"}, {"content", {1, 2.5, nullptr}}}};
  static_cast<void>(text::ChatTemplate(bytes, "chat_template").render({{"messages", messages}, {"bos_token", "<s>"}}));
}

// A GGUF file. A tokenizer that opens cuts a text.
void gguf_model(std::string_view bytes) {
  static const MemoryDirectory directory;
  directory.put("model.gguf", bytes);
  may_refuse(compute, directory.path());
  const text::Tokenizer tokenizer = text::Tokenizer::load(directory.path() + "/model.gguf");
  check(!tokenizer.encode_with_specials("a 12 b").ids.empty());
}

// A GGUF file, or the sections config.json and model.safetensors. A report must contain the frequencies that it states.
void doctor(std::string_view bytes) {
  static const MemoryDirectory directory;
  const bool is_gguf = bytes.starts_with("GGUF");
  directory.put("model.gguf", is_gguf ? bytes : std::string_view());
  directory.put("config.json", is_gguf ? std::string_view() : take_section(bytes));
  directory.put("model.safetensors", is_gguf ? std::string_view() : bytes);
  const RotaryReport report = rotary_report(directory.path());
  check(!report.rotations.empty());
  for (const Rotation& rotation : report.rotations) {
    check(!rotation.spec || std::ssize(rotation.frequencies) == rotation.spec->rotary_dim / 2);
    check(!rotation.float32_angles || rotation.float32_angles->error >= 0);
  }
  check(!to_json(report).dump().empty());
}

void check_offsets(const text::Encoding& encoding, std::string_view text) {
  const size_t count = encoding.size();
  check(encoding.byte_begin.size() == count && encoding.byte_end.size() == count);
  check(encoding.char_begin.size() == count && encoding.char_end.size() == count);
  check(encoding.starts_word.size() == count);
  for (size_t i = 0; i < count; ++i) {
    check(0 <= encoding.byte_begin[i] && encoding.byte_begin[i] <= encoding.byte_end[i]);
    check(static_cast<size_t>(encoding.byte_end[i]) <= text.size());
    check(0 <= encoding.char_begin[i] && encoding.char_begin[i] <= encoding.char_end[i]);
  }
}

void encode_and_decode(const text::Tokenizer& tokenizer, std::string_view text) {
  const text::Encoding encoding = tokenizer.encode_with_specials(text);
  check_offsets(encoding, text);
  tokenizer.decode(encoding.ids, text::SkipSpecials::kYes);
}

// Sections: a text, and the files of a tokenizer.
void tokenizer_files(std::string_view bytes) {
  static const MemoryDirectory directory;
  const std::string_view text = take_section(bytes);
  directory.put_sections(text::kTokenizerFiles, bytes);
  encode_and_decode(text::Tokenizer::load(directory.path()), text);
}

// Sections: a text, and what a step of a Unigram's normalizer reads: a character map or an expression.
template <text::NormalizerStep::Kind kind>
void normalizer_step(std::string_view bytes) {
  const std::string_view text = take_section(bytes);
  const text::UnigramOptions options{
      .scores = {-1, -2, -3}, .unk = 0, .normalizers = {{.kind = kind, .text = std::string(bytes), .content = "b"}}};
  const text::TokenizerOptions all{.pipeline = text::Pipeline::kUnigram,
                                   .unigram = std::make_shared<const text::UnigramOptions>(options)};
  encode_and_decode(text::Tokenizer(text::Vocabulary({"<unk>", "b", "\u2581"}, text::kNoSpecialNames), all), text);
}

constexpr const char* kNames[] = {"a.txt",     "a.jsonl",    "a.csv",     "a.tsv",    "a.parquet", "a.txt.gz",
                                  "a.txt.zst", "a.jsonl.gz", "a.csv.zst", "a.csv.gz", "a.tsv.zst"};

void read_documents(const std::string& path, unsigned options) {
  data::ReadOptions read = {.inputs = {path}};
  read.field = (options & 1) != 0 ? "text" : (options & 2) != 0 ? "a.b" : "1";
  read.document_rule = static_cast<data::DocumentRule>(options / 4 % 3);
  read.quotes = (options & 16) != 0 ? data::Quotes::kText : data::Quotes::kRead;
  read.bad_records = (options & 32) != 0 ? data::BadRecords::kSkip : data::BadRecords::kRefuse;
  data::DocumentReader reader(read);
  size_t bytes = 0;
  reader.read([&](const data::DocumentPart& part) { bytes += part.text.size(); });
  check(reader.counts().files == 1);
}

void read_texts(const std::string& path, unsigned options) {
  data::TextReader reader({.inputs = {path},
                           .field = (options & 1) != 0   ? "text"
                                    : (options & 2) != 0 ? "a.b"
                                                         : "1",
                           .ids = (options & 4) != 0 ? data::Ids::kNamed : data::Ids::kIfPresent,
                           .id_field = (options & 8) != 0 ? "id" : "2",
                           .bad_records = data::BadRecords::kSkip});
  reader.read([](const data::SourceText& text) {
    check(text.id.empty() || (nlohmann::json::accept(text.id) && text.id.find('\n') == std::string_view::npos));
  });
}

void read_records(const std::string& path, unsigned options) {
  data::RecordReader reader({.inputs = {path},
                             .quotes = (options & 16) != 0 ? data::Quotes::kText : data::Quotes::kRead,
                             .text_field = (options & 1) != 0 ? "text" : ""});
  int64_t last = 0;
  reader.read([&](data::Record& record) {
    check(record.fields.is_object() && record.line > last);
    last = record.line;
  });
}

// Input files of every format: as documents, as texts with ids, and as records. A byte for the format, one for options,
// and the file.
void input_files(std::string_view bytes) {
  if (bytes.size() < 2) return;
  static const MemoryDirectory directory;
  const std::string name = kNames[static_cast<unsigned char>(bytes[0]) % std::size(kNames)];
  const auto options = static_cast<unsigned char>(bytes[1]);
  directory.put(name, bytes.substr(2));
  for (auto* const read : {read_documents, read_texts, read_records})
    may_refuse(read, directory.path() + "/" + name, options);
  directory.put(name, "");
}

// What a client sends to roformer serve: it gets replies, but no internal error.
void http_front(std::string_view bytes) {
  static const MemoryDirectory directory;
  static const bool made = (put_encoder(directory, "BertForMaskedLM"), true);
  check(made);
  const std::string replies = served(directory.path(), bytes);
  check(replies.empty() || replies.starts_with("HTTP/1."));
  check(replies.find("HTTP/1.1 500") == std::string::npos);
}

template <void (*target)(std::string_view)>
void run(std::string_view bytes) {
  may_refuse(target, bytes);
}

constexpr Target kTargets[] = {
    {"config_json", run<config_json>},
    {"safetensors", run<safetensors>},
    {"model_directory", run<model_directory>},
    {"tokenizer_files", run<tokenizer_files>},
    {"input_files", run<input_files>},
    {"doctor", run<doctor>},
    {"gguf_model", run<gguf_model>},
    {"sentence_modules", run<sentence_modules>},
    {"cross_encoder", run<cross_encoder>},
    {"chat_template", run<chat_template>},
    {"json_schema", run<json_schema>},
    {"http_front", run<http_front>},
    {"charsmap", run<normalizer_step<text::NormalizerStep::Kind::kPrecompiled>>},
    {"expression", run<normalizer_step<text::NormalizerStep::Kind::kReplaceExpression>>},
};

}  // namespace

std::span<const Target> targets() { return kTargets; }

const Target* find_target(std::string_view name) {
  for (const Target& target : kTargets) {
    if (target.name == name) return &target;
  }
  return nullptr;
}

}  // namespace rf::fuzz
