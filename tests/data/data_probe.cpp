// What tests/oracles/test_readers.py, test_prepare_memory.py, test_open_memory.py, test_language_model_metrics.py and
// test_loss_curves.py call. `data_probe OPTIONS` with ReadOptions as a JSON object:
//   {"inputs": [...], "format": .., "field": .., "documents": .., "quotes": bool, "skip": bool, "prepare": {..}}
// prints {"documents": [hexadecimal ...], "pieces": [bytes ...], "skipped": n}, with the lengths of the pieces in which
// the documents came; with "prepare": {"model": DIR, "output": DIR, "threads": n} the report.
//   {"rows": {"data": DIR, "split": .., "max_length": n, "mask_probability": x, "seed": n, "pairs": name}}
// prints the rows of a masked language model in order, one chunk of a document each and without padding:
// {"rows": [{"ids": [..], "places": [..], "labels": [..]} ..]}; with pairs each row also has "types" and its
// "pair_label".
//   {"batches": {"data": DIR, "max_length": n, "batch": n, "count": n, "seed": n}}
// prints the first batches of padded rows of the split "train", as pretrain reads and masks them: {"batches":
// [{"length": n, "ids": [..], "segments": [..], "places": [..], "labels": [..]} ..]}, row by row.
//   {"open": {"data": DIR, "max_length": n, "batches": n}}
// opens the split "train" and makes batches of 32 shuffled, packed rows; prints what it holds, and the memory that
// opening and all took. An rf::Error is {"error": message}.
#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "rf/data/batcher.h"
#include "rf/data/prepare.h"
#include "rf/data/reader.h"
#include "rf/io/error.h"
#include "rf/text/tokenizer.h"

namespace {

using nlohmann::json;

rf::data::ReadOptions read_options(const json& given) {
  using namespace rf::data;
  ReadOptions options;
  options.inputs = given.at("inputs").get<std::vector<std::string>>();
  options.format = format(given.value("format", "auto"));
  options.field = given.value("field", "text");
  options.document_rule = document_rule(given.value("documents", "file"));
  options.quotes = given.value("quotes", true) ? Quotes::kRead : Quotes::kText;
  options.bad_records = given.value("skip", false) ? BadRecords::kSkip : BadRecords::kRefuse;
  return options;
}

std::string hexadecimal(std::string_view bytes) {
  std::string digits;
  for (const char c : bytes) digits += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return digits;
}

json read(const json& given) {
  rf::data::DocumentReader reader(read_options(given));
  json documents = json::array();
  json pieces = json::array();
  std::string document;
  reader.read([&](const rf::data::DocumentPart& piece) {
    pieces.push_back(piece.text.size());
    document += piece.text;
    if (piece.end == rf::data::DocumentPart::End::kOfDocument) {
      documents.push_back(hexadecimal(std::exchange(document, "")));
    }
  });
  return {{"documents", documents}, {"pieces", pieces}, {"skipped", reader.counts().skipped_records}};
}

// An entry of /proc/self/status in bytes: "VmHWM:" is the most memory that this process has held (getrusage would count
// the one that started it), "RssAnon:" what it holds beside mapped files.
int64_t memory_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (int64_t kib = 0; word == name && status >> kib) return kib * 1024;
  }
  return 0;
}

json prepare(const json& given) {
  rf::data::PrepareOptions options;
  options.input = read_options(given);
  options.model_dir = given.at("prepare").at("model");
  options.output_dir = given.at("prepare").at("output");
  options.threads = given.at("prepare").value("threads", 0);
  rf::io::Progress progress;
  const rf::data::PrepareReport report = rf::data::prepare(options, progress);
  return {{"documents", report.documents},
          {"tokens", report.train_tokens + report.valid_tokens},
          {"replaced", report.replaced_bytes},
          {"skipped", report.skipped_records},
          {"peak_bytes", memory_bytes("VmHWM:")}};
}

// A batcher of padded rows.
rf::data::Batcher open_batcher(const json& given, const std::string& split, int64_t batch_size,
                               rf::data::MaskOptions mask, rf::data::Pairs pairs) {
  using namespace rf::data;
  const std::string directory = given.at("data");
  const rf::text::Vocabulary vocabulary = rf::text::load_vocabulary(directory);
  return Batcher(std::make_shared<const Split>(directory, split, vocabulary.hash()), vocabulary.special(),
                 {.max_length = given.at("max_length"),
                  .batch_size = batch_size,
                  .packing = Packing::kPadded,
                  .mask = mask,
                  .seed = given.at("seed"),
                  .pairs = pairs});
}

json rows(const json& given) {
  using namespace rf::data;
  Pairs pairs = Pairs::kNone;
  for (const auto& [name, each] : kPairsNames) {
    if (given.value("pairs", "none") == name) pairs = each;
  }
  const MaskOptions mask{.probability = given.at("mask_probability")};
  const Batcher batcher = open_batcher(given, given.at("split"), 1, mask, pairs);
  json all = json::array();
  Batch batch;
  for (int64_t row = 0; batcher.next_in_order(row, batch);) {
    all.push_back({{"ids", batch.ids}, {"places", batch.places}, {"labels", batch.labels}});
    if (pairs == Pairs::kNone) continue;
    const std::vector<int64_t> real(batch.types.begin(), batch.types.begin() + batch.real_tokens);
    all.back().update(json{{"types", real}, {"pair_label", batch.pair_labels.at(0)}});
    all.back()["ids"] = std::vector<int64_t>(batch.ids.begin(), batch.ids.begin() + batch.real_tokens);
  }
  return {{"rows", all}};
}

json batches(const json& given) {
  using namespace rf::data;
  const Batcher batcher = open_batcher(given, "train", given.at("batch"), {}, Pairs::kNone);
  json all = json::array();
  BatchCursor cursor;
  for (int64_t i = 0; i < given.at("count").get<int64_t>(); ++i) {
    const Batch batch = batcher.next(cursor);
    all.push_back({{"length", batch.length},
                   {"ids", batch.ids},
                   {"segments", batch.segments},
                   {"places", batch.places},
                   {"labels", batch.labels}});
  }
  return {{"batches", all}};
}

json open(const json& given) {
  using namespace rf::data;
  const auto split = std::make_shared<const Split>(given.at("data"), "train", "");
  const Batcher batcher(split, {.pad = 0, .unk = 1, .cls = 2, .sep = 3, .mask = 4},
                        {.max_length = given.at("max_length"), .batch_size = 32, .packing = Packing::kPacked});
  json answer = {
      {"documents", split->documents()}, {"tokens", split->tokens()}, {"rows_bytes", memory_bytes("RssAnon:")}};
  BatchCursor cursor;
  for (int64_t i = 0; i < given.at("batches").get<int64_t>(); ++i) batcher.next(cursor);
  answer["peak_bytes"] = memory_bytes("VmHWM:");
  return answer;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const json given = json::parse(argv[1]);
  try {
    const json answer = given.contains("rows")      ? rows(given.at("rows"))
                        : given.contains("batches") ? batches(given.at("batches"))
                        : given.contains("open")    ? open(given.at("open"))
                        : given.contains("prepare") ? prepare(given)
                                                    : read(given);
    std::cout << answer.dump() << "\n";
  } catch (const rf::Error& error) {
    std::cout << json{{"error", error.what()}}.dump(-1, ' ', false, json::error_handler_t::replace) << "\n";
    return 1;
  }
}
