// The commands that need PyTorch, as --help lists them; their options and their work are in cli/training, in files of
// the same names.
#include "command.h"

namespace rf::cli {

using Seed = Command::Seed;

// A name as in main.cpp, then the first fields of Command.
#define RF_TORCH_COMMAND(name, ...) \
  Command name##_command() { return {__VA_ARGS__, nullptr}; }

RF_TORCH_COMMAND(add_words, "add-words", "Add words to the vocabulary of a model of characters",
                 "roformer add-words --model bert-base-chinese --input corpus/ --words 20000 --output wobert",
                 Seed::kNotUsed)
RF_TORCH_COMMAND(bake, "bake", "Write the constants of a model's position encoding, for sequences up to a length",
                 "roformer bake --model run --length 8192", Seed::kNotUsed)
RF_TORCH_COMMAND(pretrain, "pretrain", "Masked or causal language-model pretraining from a run file",
                 "roformer pretrain --config run.json --data data --output run [--resume]", Seed::kUsed)
RF_TORCH_COMMAND(
    finetune, "finetune",
    "Fine-tune a model for classification, regression, triples, multiple choice, token labels or question answering",
    "roformer finetune --task classification --model run --train train.tsv --valid valid.tsv --output tuned\n"
    "      --learning-rates 2e-5,3e-5 --seeds 3 --columns text=sentence1,pair=sentence2",
    Seed::kUsed)
RF_TORCH_COMMAND(train_translation, "train-translation", "Train an encoder-decoder on sentences and their translations",
                 "roformer train-translation --config run.json --train train.en train.de --valid valid.en valid.de\n"
                 "      --tokenizer v --output run",
                 Seed::kUsed)
RF_TORCH_COMMAND(
    train_similar, "train-similar", "Train a RoFormer-Sim model, which compares and generates similar texts",
    "roformer train-similar --model run --pairs pairs.tsv --columns text=sentence1,pair=sentence2 --output sim",
    Seed::kUsed)
RF_TORCH_COMMAND(compare, "compare", "Train the same model with each of several position encodings and compare them",
                 "roformer compare --encodings none,learned,rope --data data --output comparison --seeds 3",
                 Seed::kUsed)
RF_TORCH_COMMAND(bench, "bench", "Run training steps driven by lines on standard input, for timing scripts",
                 "roformer bench --model run --ids ids.npy --labels labels.npy", Seed::kNotUsed)

}  // namespace rf::cli
