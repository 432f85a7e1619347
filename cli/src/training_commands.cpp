// The commands that need PyTorch, as --help lists them; their options and their work are in cli/training, in files of
// the same names.
#include "command.h"

namespace rf::cli {

using Seed = Command::Seed;

Command add_words_command() {
  return {"add-words", "Add words to the vocabulary of a model of characters",
          "roformer add-words --model bert-base-chinese --input corpus/ --words 20000 --output wobert", Seed::kNotUsed,
          nullptr};
}

Command bake_command() {
  return {"bake", "Write the constants of a model's position encoding, for sequences up to a length",
          "roformer bake --model run --length 8192", Seed::kNotUsed, nullptr};
}

Command pretrain_command() {
  return {"pretrain", "Masked or causal language-model pretraining from a run file",
          "roformer pretrain --config run.json --data data --output run [--resume]", Seed::kUsed, nullptr};
}

Command finetune_command() {
  return {"finetune", "Train a model for a task: classes, numbers, triples, choices, labels of words, answers",
          "roformer finetune --task classification --model run --train train.tsv --valid valid.tsv --output tuned\n"
          "      --learning-rates 2e-5,3e-5 --seeds 3 --columns text=sentence1,pair=sentence2",
          Seed::kUsed, nullptr};
}

Command train_translation_command() {
  return {"train-translation", "Train an encoder-decoder on sentences and their translations",
          "roformer train-translation --config run.json --train train.en train.de --valid valid.en valid.de\n"
          "      --tokenizer v --output run",
          Seed::kUsed, nullptr};
}

Command translate_command() {
  return {"translate", "Translate lines with an encoder-decoder",
          "roformer translate --model run --input test.en --output test.de --beams 4", Seed::kNotUsed, nullptr};
}

Command train_similar_command() {
  return {"train-similar", "Train a model on pairs of similar texts: vectors to compare, and texts that it writes",
          "roformer train-similar --model run --pairs pairs.tsv --columns text=sentence1,pair=sentence2 --output sim",
          Seed::kUsed, nullptr};
}

Command compare_command() {
  return {"compare", "Train the same model with each of several position encodings and compare them",
          "roformer compare --encodings none,learned,rope --data data --output comparison --seeds 3", Seed::kUsed,
          nullptr};
}

Command bench_command() {
  return {"bench", "Run training steps on command, for scripts that time them",
          "roformer bench --model run --ids ids.npy --labels labels.npy", Seed::kNotUsed, nullptr};
}

}  // namespace rf::cli
