/* Which rank has what of which table: pure arithmetic, no calls, so any number of ranks can be planned in one process.
 *
 * A table is cut into slices; a slice has one owner, or lies on every rank (replicated). A table is whole, cut by
 * columns, or cut by rows, never both. Row slices are cyclic: with R ranks, row r of table t lies on rank (r + t) mod R,
 * so that ids of any order of frequency spread over the ranks (frequent ones mostly stand together at the low end).
 *
 * What an input gets of a slice is a part of its vector; of an unpooled input, of each of its vectors. Each owner has a pooled matrix [samples, width], in which every
 * part has its columns: the layout that travels. */
#pragma once
#include "config/spec.h"

enum { DLRM_EVERY_RANK = -1 /* an owner */ };

typedef struct dlrm_slice {
    int table;
    int owner;                         /* a rank, or DLRM_EVERY_RANK */
    int64_t first_row, row_step, rows; /* row i of the slice is the table's row first_row + i*row_step */
    int first_column, columns;
} dlrm_slice;

typedef struct dlrm_vector_part {
    int input, slice;
    int vectors;  /* side by side, each as wide as the slice: 1, all of the bag pooled; or as many as it may have ids, one of each */
    int column;   /* of its first element in a row of its owner's pooled matrix */
    bool exact;   /* vectors are rows that travel as fp32, in the place of twice as many 16-bit elements, of which their gradients
                     have the first half */
} dlrm_vector_part;

typedef struct dlrm_placement {
    int ranks;
    int n_slices, n_parts;
    dlrm_slice *slices;     /* by table, then by first row or column */
    dlrm_vector_part *parts; /* by input, then slice */
    int n_vectors;          /* of all parts */
    int *first_slice;       /* [n_tables+1] */
    int *owned, *first_owned; /* slices by owner, rank r's from first_owned[r] on, rising; [ranks+1]. Not those on every rank */
    int *first_part;        /* [n_inputs+1] */
    int64_t *width;         /* [ranks]: row width of the pooled matrix of a rank's own slices */
    int64_t *elements;      /* [ranks]: table elements that it owns */
    int *tables, *inputs;   /* [ranks]: slices and parts that it owns */
    double *seconds;        /* [ranks]: of a step, that the cost model expects its tables to take */
    int replicated_tables, replicated_inputs;
    int64_t replicated_width, replicated_elements; /* the same of what lies on every rank */
} dlrm_placement;

/* What the cost model (placement_cost.h) is told of the work and of the machine. */
typedef struct dlrm_placement_work {
    int64_t batch;
    int value_bytes, table_bytes; /* of an element: of a vector as it travels, of a table */
    int states, row_states;       /* fp32 values of optimizer state: for an element, for a row */
    bool keeps_keys;              /* the memory that bounds tables has to hold vocabularies, too: it is the host's */
    int shared_bytes;             /* what an owner of columns tells each other one of a row that it updates (shared_rows.h); else 0 */
    /* Of a rank: bytes/s, of its memory, its network, sums over ranks of replicated tables' gradients, and each way between a device and
     * the host's memory; what memory moves at
     * least for a row (bytes); and seconds that go besides: for each id (looked up, sorted, updated) and each vector, for each
     * row or gradient that lies beyond near_bytes of memory, where its place is not next to the last one's. */
    double memory_rate, network_rate, sums_rate, link_rate;
    int grain;
    double id_s, vector_s, far_s;
    double link_row_s; /* for each row that crosses the link */
    int64_t near_bytes;
    /* for each slice; for there being replicated tables, and for each of them; for each id of a table that is cut by rows, which the host picks its own rows' from */
    double slice_s, replicated_s, copy_s, pick_s;
    double translate_s; /* and for each key, whose row the host looks up, on every rank that holds some of its table */
    double alpha;       /* of the power law that ids are taken to follow; 0: uniform */
} dlrm_placement_work;

/* Each table goes by the first rule that fits, with several ranks: replicated; cut by rows; cut by columns; whole. Column
 * slices are as wide as each other, the first ones a column wider where that does not come out even; those of a table that
 * come to lie on one rank are one slice. Without a threshold for columns, and fewer slices than ranks, the largest are halved
 * until every rank has one, as far as there are columns. Tables with a vocabulary are neither replicated nor cut by rows.
 * Strategies place what is neither replicated nor cut by rows. basic: slice k on rank k mod ranks. memory_balanced: by
 * falling size, dealt out to and fro (0 … … 0). memory_optimized: by falling size, each to the rank that holds
 * least. auto: what the cost model (placement_cost.h) expects to be fastest, with thresholds of its own where none are given. */
typedef struct dlrm_placement_args {
    dlrm_strategy strategy;
    /* elements, -1: none */
    int64_t data_parallel; /* a table with at most so many is replicated */
    int64_t row_slice;     /* one with at least so many, and a row for each rank, is cut by rows over all ranks */
    int64_t column_slice;  /* a larger one is cut by columns into the least power of two of slices not above it, at most as
                              many as ranks and columns */
    dlrm_placement_work work; /* for auto */
    int64_t memory;        /* auto: bytes of tables (with vocabularies) and optimizer state that a rank may hold; with `host`, that it
                              may hold in the host's memory; 0: no bound */
    const struct dlrm_host_tables_args *host; /* which tables lie in the host's memory beside a device (host_tables.h); NULL: none */
    bool unpooled;         /* deterministic mode: of tables cut by rows, each id's row travels apart, and the receiver adds them in
                              the order of the bag, as an owner of the whole table would */
    bool exact_rows;       /* those rows may not be rounded as vectors are: they travel as fp32. Vectors have 16 bits */
} dlrm_placement_args;

dlrm_status dlrm_placement_make(const dlrm_model_spec *spec, const dlrm_placement_args *args, int ranks,
                                dlrm_placement *out) DLRM_MUST_USE;
void dlrm_placement_clear(dlrm_placement *p);

static inline int64_t dlrm_slice_elements(const dlrm_slice *s)
{
    return s->rows * s->columns;
}

/* Has the rank a slice of the input's table for itself, so that it needs the input's ids of all samples? */
bool dlrm_placement_wants(const dlrm_placement *p, int input, int rank);
/* Does the input's table lie on every rank? */
bool dlrm_placement_replicates(const dlrm_placement *p, int input);
/* Is the input's table cut by rows? Its vector is then the sum of its parts, else they stand side by side. */
bool dlrm_placement_adds(const dlrm_placement *p, int input);
/* Elements that a sample's rank receives for it, from all ranks together. */
int64_t dlrm_placement_received(const dlrm_placement *p);
/* "rank 3", "every rank", "8 row slices", "4 column slices": where a table lies. Returns buf. */
const char *dlrm_placement_text(const dlrm_placement *p, int table, char *buf, size_t bytes);
