/* The C interface of the engine: trained encoders without PyTorch. rf/engine/model.h documents the results, and how
 * sequences are passed.
 *
 * Functions return an rf_status (rf/status.h) and never throw; after a status other than RF_OK, rf_engine_last_error()
 * of the calling thread reads "[where] rule, got value". Argument structs start with struct_size = sizeof(the struct);
 * all other fields are 0 unless set. Several threads may use an rf_engine at the same time.
 */
#ifndef RF_ENGINE_H_
#define RF_ENGINE_H_

#include "rf/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rf_engine rf_engine;

typedef enum rf_engine_precision {
  RF_ENGINE_FLOAT32 = 0,
  RF_ENGINE_BFLOAT16 = 1,
  RF_ENGINE_INT8 = 2
} rf_engine_precision;

/* Of the keys and values of generation (rf/engine/precision.h). */
typedef enum rf_engine_cache_precision {
  RF_ENGINE_CACHE_AUTO = 0,
  RF_ENGINE_CACHE_BFLOAT16 = 1,
  RF_ENGINE_CACHE_INT8 = 2
} rf_engine_cache_precision;

typedef enum rf_engine_head {
  RF_ENGINE_CONFIGURED_HEAD = 0, /* the one that config.json names */
  RF_ENGINE_NO_HEAD = 1,
  RF_ENGINE_MASKED_LM = 2
} rf_engine_head;

typedef enum rf_engine_pooling {
  RF_ENGINE_MEAN = 0,
  RF_ENGINE_CLS = 1,
  RF_ENGINE_POOLER = 2,
  RF_ENGINE_LAST = 3,
  RF_ENGINE_MAX = 4,
  RF_ENGINE_MEAN_SQRT_LEN = 5
} rf_engine_pooling;

typedef struct rf_engine_options {
  size_t struct_size;
  rf_engine_precision precision;
  int64_t token_budget; /* tokens that are computed together; 0: 4096 */
  rf_engine_head head;
  const char* task;    /* one that the model has an adapter for, or NULL */
  const char* adapter; /* a folder with an adapter of PEFT, or NULL */
  rf_engine_cache_precision cache_precision;
} rf_engine_options;

/* Sequence i is the tokens offsets[i] .. offsets[i + 1] - 1. */
typedef struct rf_engine_tokens {
  size_t struct_size;
  int64_t sequences;
  const int64_t* offsets;   /* [sequences + 1], rising from 0 */
  const int32_t* ids;       /* [offsets[sequences]], as what follows */
  const int32_t* types;     /* or NULL: all 0 */
  const uint8_t* attend;    /* 0: no token attends to it; or NULL: all are attended to */
  const int64_t* positions; /* or NULL: 0, 1, .. in each sequence */
} rf_engine_tokens;

typedef struct rf_engine_info {
  size_t struct_size;
  int64_t vocab_size, hidden_size, layers, heads;
  int64_t logits_per_row;   /* 0: a bare encoder */
  int32_t logits_of_tokens; /* 1: rf_engine_logits gives a row for each token, 0: for each sequence */
} rf_engine_info;

/* model_dir: a model directory, or a GGUF file (docs/generation.md, docs/embeddings.md). options: NULL for the
 * defaults. */
RF_API rf_status rf_engine_open(const char* model_dir, const rf_engine_options* options, rf_engine** engine);
RF_API void rf_engine_close(rf_engine* engine); /* NULL is allowed */
RF_API rf_status rf_engine_describe(const rf_engine* engine, rf_engine_info* info);

/* out: [tokens, hidden_size] */
RF_API rf_status rf_engine_hidden(const rf_engine* engine, const rf_engine_tokens* tokens, float* out);
/* out: [sequences, hidden_size] */
RF_API rf_status rf_engine_pooled(const rf_engine* engine, const rf_engine_tokens* tokens, rf_engine_pooling pooling,
                                  float* out);
/* out: [tokens or sequences, logits_per_row] */
RF_API rf_status rf_engine_logits(const rf_engine* engine, const rf_engine_tokens* tokens, float* out);
/* Logits of a language model at chosen tokens; rows: ascending; out: [count, vocab_size]. */
RF_API rf_status rf_engine_vocabulary_logits(const rf_engine* engine, const rf_engine_tokens* tokens,
                                             const int64_t* rows, int64_t count, float* out);

/* ---- generation, for causal language models: documented in rf/engine/generator.h and rf/engine/decoder.h ----
 */
typedef enum rf_engine_search { RF_ENGINE_GREEDY = 0, RF_ENGINE_SAMPLE = 1, RF_ENGINE_BEAMS = 2 } rf_engine_search;

/* 0 in a field: its default in GenerationOptions. */
typedef struct rf_engine_generation {
  size_t struct_size;
  rf_engine_search search;
  int64_t max_new_tokens, min_new_tokens;
  const int32_t* stop_ids;
  int64_t stop_count;
  double repetition_penalty;
  int64_t return_sequences; /* for each prompt */
  double temperature;
  int64_t top_k;
  double top_p;
  uint64_t seed;
  int64_t beams;
  const double* length_penalty; /* NULL: 1 */
  int32_t stop_when_full;       /* not 0: true */
  int64_t batch;
  double presence_penalty, frequency_penalty;
} rf_engine_generation;

typedef struct rf_engine_generated {
  size_t struct_size;
  int32_t* ids;            /* [sequences, return_sequences, max_new_tokens] */
  int64_t* counts;         /* [sequences, return_sequences]: ids of each */
  double* log_probability; /* the same, as what follows; or NULL */
  double* score;           /* or NULL */
  int32_t* stopped;        /* or NULL */
} rf_engine_generated;

/* prompts: only ids and offsets. options: NULL for the defaults. */
RF_API rf_status rf_engine_generate(const rf_engine* engine, const rf_engine_tokens* prompts,
                                    const rf_engine_generation* options, const rf_engine_generated* out);
/* Probabilities of the token after a prompt of `count` ids, from which sampling draws; out: [vocab_size]. */
RF_API rf_status rf_engine_next_probabilities(const rf_engine* engine, const int32_t* prompt, int64_t count,
                                              const rf_engine_generation* options, float* out);

/* Growing sequences; the engine must outlive them. Only one thread at a time may use them. */
typedef struct rf_engine_decoder rf_engine_decoder;
RF_API rf_status rf_engine_decoder_open(const rf_engine* engine, int64_t sequences, int64_t max_tokens,
                                        rf_engine_decoder** decoder);
RF_API void rf_engine_decoder_close(rf_engine_decoder* decoder); /* NULL is allowed */
/* added: its i-th sequence is appended to sequence sequences[i]; sequences: ascending; logits: of the token that
 * follows each sequence, [added->sequences, vocab_size].
 */
RF_API rf_status rf_engine_decoder_append(rf_engine_decoder* decoder, const int64_t* sequences,
                                          const rf_engine_tokens* added, float* logits);
RF_API rf_status rf_engine_decoder_copy(rf_engine_decoder* decoder, int64_t from, int64_t to);
RF_API rf_status rf_engine_decoder_truncate(rf_engine_decoder* decoder, int64_t sequence, int64_t tokens);

/* Texts to vectors (rf/engine/embedder.h). Several threads may use an rf_engine_embedder at the same time. */
typedef struct rf_engine_embedder rf_engine_embedder;

typedef enum rf_engine_vector_kind {
  RF_ENGINE_DENSE = 0,         /* one vector for a text */
  RF_ENGINE_SPARSE = 1,        /* weights of the vocabulary, mostly 0 (SPLADE) */
  RF_ENGINE_TOKEN_VECTORS = 2, /* a vector for each token (late interaction) */
  RF_ENGINE_ALL_VECTORS = 3    /* the three, from one pass of a model that has their heads (bge-m3) */
} rf_engine_vector_kind;

typedef enum rf_engine_role { RF_ENGINE_NO_ROLE = 0, RF_ENGINE_QUERY = 1, RF_ENGINE_DOCUMENT = 2 } rf_engine_role;

/* Fields that are 0 or NULL take the values of the model directory. */
typedef struct rf_engine_embedder_options {
  size_t struct_size;
  rf_engine_precision precision;
  int64_t token_budget; /* 0: 4096 */
  const rf_engine_pooling* pooling;
  int32_t normalize;         /* 1: vectors of length 1; -1: not normalised */
  int64_t dimensions;        /* the first elements of each vector */
  int64_t max_length;        /* tokens of a text with its special tokens */
  const char* prompt;        /* text before each text */
  const char* prompt_name;   /* one of the directory's prompts */
  int32_t refuse_long_texts; /* 0: a text of more tokens is truncated; 1: it is an error */
  rf_engine_vector_kind vectors;
  rf_engine_role role; /* of all texts */
  int64_t max_active;  /* weights of a sparse vector, the largest */
  const char* task;    /* one that the model has an adapter for */
  const char* adapter; /* a folder with an adapter of PEFT */
} rf_engine_embedder_options;

/* options: NULL for the defaults. */
RF_API rf_status rf_engine_embedder_open(const char* model_dir, const rf_engine_embedder_options* options,
                                         rf_engine_embedder** embedder);
RF_API void rf_engine_embedder_close(rf_engine_embedder* embedder); /* NULL is allowed */
RF_API rf_status rf_engine_embedder_dimensions(const rf_engine_embedder* embedder, int64_t* dimensions);
/* texts: in UTF-8; invalid bytes become U+FFFD. bytes: of each text, or NULL: texts end with a zero byte. out: [count,
 * dimensions]. Not for vectors of tokens. */
RF_API rf_status rf_engine_embed(const rf_engine_embedder* embedder, int64_t count, const char* const* texts,
                                 const size_t* bytes, float* out);

/* The vectors of texts, of the embedder's kinds; pointers of other kinds are NULL, their sizes 0. All pointers are
 * valid until rf_engine_vectors_free. */
typedef struct rf_engine_vectors {
  size_t struct_size;
  int64_t count; /* of texts */
  int64_t dense_dimensions, sparse_dimensions, token_dimensions;
  const float* dense; /* [count, dense_dimensions] */
  /* Text i has the weights sparse_offsets[i] .. sparse_offsets[i + 1] - 1, by ascending index. */
  const int64_t* sparse_offsets; /* [count + 1] */
  const int32_t* sparse_indices; /* [sparse_offsets[count]], below sparse_dimensions */
  const float* sparse_values;    /* the same */
  /* Text i has the vectors token_offsets[i] .. token_offsets[i + 1] - 1. */
  const int64_t* token_offsets; /* [count + 1] */
  const float* token_vectors;   /* [token_offsets[count], token_dimensions] */
  void* owner;                  /* of the memory */
} rf_engine_vectors;

/* out: its struct_size must be set; other fields are overwritten, after an error with 0. texts, bytes: as above. */
RF_API rf_status rf_engine_embed_vectors(const rf_engine_embedder* embedder, int64_t count, const char* const* texts,
                                         const size_t* bytes, rf_engine_vectors* out);
/* Frees the memory and sets all fields but struct_size to 0. NULL, and vectors that are free, are allowed. */
RF_API void rf_engine_vectors_free(rf_engine_vectors* vectors);

/* "" without an error on this thread. Valid until the next call on this thread. */
RF_API const char* rf_engine_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
