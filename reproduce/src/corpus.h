// Texts of the trained experiments, as data directories of roformer prepare that are made once, and again if the files
// change.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>

#include "experiment.h"

namespace rf::reproduce {

// In JSON, members that are empty are absent.
struct Corpus {
  std::string name;
  Files files;
  std::variant<int64_t, std::string> tokens;  // "bytes", the size of a vocabulary that is trained on the files, or the
                                              // file of one
  double valid_fraction = 0;
  std::string documents = {};   // as roformer prepare takes them; "": each file
  std::string field = {};       // of a record's text; "": text
  std::string dictionary = {};  // jieba's, whose words whole-word masking masks;
  std::string pipeline = {};    // with "roformer" they are tokens,
  int64_t add_words = 0;        // of which this many, the most frequent, are new to the vocabulary

  Files all_files() const;
};
void to_json(nlohmann::json& json, const Corpus& corpus);

// The data directory of a corpus, <scale>/corpus/<name>/data, which is made unless there is one from the same files
// with the same settings.
std::string prepared(const Context& context, const Corpus& corpus);

// Books in English, with a vocabulary of 4096 that is trained on them; kPaper: R-CFG-2's.
Corpus book_corpus(Scale scale);
// Chinese laws, with characters as tokens.
Corpus law_corpus(Scale scale);
// Wikipedia as XML, with bytes as tokens; kPaper: enwik8.
Corpus byte_corpus(Scale scale);

}  // namespace rf::reproduce
