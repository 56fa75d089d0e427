/* Every collective against what it means, with sizes that differ by rank, empty ones among them. `test_comm hang` stops
 * one rank and must be ended by the watchdog (tests/mpi/test_watchdog.sh). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "comm/reduce.h"
#include "comm/shared.h"
#include "verdict.h"

static void check_agree(dlrm_comm *c)
{
    CHECK(c, dlrm_comm_agree(c, DLRM_OK) == DLRM_OK, "all are well");
    for (int first = 0; first < c->ranks; first++) { /* this rank and the ones after it fail */
        char want[64];
        dlrm_status mine = DLRM_OK;
        if (c->rank >= first)
            mine = FAIL(c->rank == first ? DLRM_E_INPUT : DLRM_E_RUNTIME, "trouble on rank %d, 100%%", c->rank);
        snprintf(want, sizeof want, "trouble on rank %d, 100%%", first);
        dlrm_status st = dlrm_comm_agree(c, mine);
        CHECK(c, st == DLRM_E_INPUT, "status %d", st);
        CHECK(c, strcmp(dlrm_error_message(), want) == 0, "message '%s', expected '%s'", dlrm_error_message(), want);
    }
}

static void check_small(dlrm_comm *c)
{
    int64_t sent = c->bytes_sent;
    dlrm_comm_barrier(c);
    for (int root = 0; root < c->ranks; root++) {
        char text[40] = "";
        if (c->rank == root) snprintf(text, sizeof text, "from %d", root);
        dlrm_comm_bcast(c, text, sizeof text, root);
        CHECK(c, atoi(text + 5) == root, "'%s'", text);
    }
    int32_t mine[3] = {c->rank, -c->rank, 5}, all[3 * 64];
    dlrm_comm_allgather(c, mine, sizeof mine, all);
    for (int p = 0; p < c->ranks; p++)
        CHECK(c, all[3 * p] == p && all[3 * p + 1] == -p && all[3 * p + 2] == 5, "rank %d", p);

    int64_t sums[2] = {c->rank + 1, INT64_C(1) << 55}, R = c->ranks;
    dlrm_comm_sum_i64(c, sums, 2);
    CHECK(c, sums[0] == R * (R + 1) / 2 && sums[1] == R << 55, "%lld %lld", (long long)sums[0], (long long)sums[1]);
    CHECK(c, c->bytes_sent == sent, "control messages count as traffic");
}

static void check_pulse(dlrm_comm *c)
{
    for (int round = 0; round < 3 * c->ranks; round++) {
        int loud = round % c->ranks;
        int64_t value = round < c->ranks ? 4 : c->rank == loud ? INT64_C(1) << 40 : c->rank;
        dlrm_comm_pulse_start(c, value);
        dlrm_comm_barrier(c); /* other traffic meanwhile */
        int64_t got = dlrm_comm_pulse_finish(c);
        CHECK(c, got == (round < c->ranks ? 4 : INT64_C(1) << 40), "%lld of rank %d", (long long)got, loud);
    }
}

/* Bytes from rank p to rank q: none for some pairs, many for others. */
static int64_t block_bytes(int p, int q, int round)
{
    if ((p + q + round) % 3 == 0) return 0;
    return round == 2 ? 100000 * (p + 1) + 3 * q : 1 + 7 * p + q;
}

static void exchange(dlrm_comm *c, bool background, const void *send, const int64_t *send_at, void *recv, const int64_t *recv_at)
{
    int64_t at[65] = {0};
    char from[64], to[64];
    if (!background) {
        dlrm_comm_alltoallv(c, send, send_at, recv, recv_at);
        return;
    }
    for (int p = 0; p < c->ranks; p++) {
        from[p] = (char)(c->rank + p);
        at[p + 1] = at[p] + 1;
    }
    int64_t sent = c->bytes_sent;
    dlrm_comm_alltoallv_start(c, send, send_at, recv, recv_at);
    sent += c->bytes_sent - sent;
    dlrm_comm_alltoallv(c, from, at, to, at); /* other traffic, of the same kind, meanwhile */
    for (int p = 0; p < c->ranks; p++) CHECK(c, to[p] == (char)(c->rank + p), "from %d: %d", p, to[p]);
    dlrm_comm_alltoallv_finish(c);
    c->bytes_sent = sent;
}

static void check_alltoallv(dlrm_comm *c, bool background)
{
    int64_t send_at[65] = {0}, recv_at[65] = {0};
    for (int round = 0; round < 4; round++) {
        unsigned char *send, *recv;
        for (int p = 0; p < c->ranks; p++) {
            send_at[p + 1] = send_at[p] + (round == 3 ? 0 : block_bytes(c->rank, p, round));
            recv_at[p + 1] = recv_at[p] + (round == 3 ? 0 : block_bytes(p, c->rank, round));
        }
        bool memory = dlrm_alloc(send_at[c->ranks], 1, "send", &send) == DLRM_OK;
        memory &= dlrm_alloc(recv_at[c->ranks] + 1, 1, "recv", &recv) == DLRM_OK;
        CHECK(c, memory, "memory");
        for (int p = 0; p < c->ranks; p++)
            for (int64_t i = send_at[p]; i < send_at[p + 1]; i++)
                send[i] = (unsigned char)(c->rank * 31 + p * 17 + (i - send_at[p]) * 3 + 1);
        recv[recv_at[c->ranks]] = 99;
        int64_t sent = c->bytes_sent, to_others = send_at[c->ranks] - (send_at[c->rank + 1] - send_at[c->rank]);
        exchange(c, background, send, send_at, recv, recv_at);
        CHECK(c, c->bytes_sent - sent == to_others, "%lld bytes counted", (long long)(c->bytes_sent - sent));
        for (int p = 0; p < c->ranks; p++)
            for (int64_t i = recv_at[p]; i < recv_at[p + 1]; i++)
                CHECK(c, recv[i] == (unsigned char)(p * 31 + c->rank * 17 + (i - recv_at[p]) * 3 + 1),
                      "round %d, from %d, byte %lld", round, p, (long long)(i - recv_at[p]));
        CHECK(c, recv[recv_at[c->ranks]] == 99, "written past the end");
        dlrm_free(&send);
        dlrm_free(&recv);
    }
}

static void check_allgatherv(dlrm_comm *c)
{
    int64_t at[65] = {0};
    float data[64 * 10];
    for (int p = 0; p < c->ranks; p++) at[p + 1] = at[p] + (p * 5) % 10;
    for (int64_t i = 0; i < at[c->ranks]; i++) data[i] = i >= at[c->rank] && i < at[c->rank + 1] ? (float)i : NAN;
    int64_t sent = c->bytes_sent;
    dlrm_comm_allgatherv_f32(c, data, at);
    for (int64_t i = 0; i < at[c->ranks]; i++)
        CHECK(c, data[i] == (float)i, "element %lld is %g", (long long)i, (double)data[i]);
    CHECK(c, c->bytes_sent - sent == (at[c->rank + 1] - at[c->rank]) * 4 * (c->ranks - 1), "traffic");
    unsigned char bytes[64 * 10];
    for (int64_t i = 0; i < at[c->ranks]; i++) bytes[i] = i >= at[c->rank] && i < at[c->rank + 1] ? (unsigned char)(i + 1) : 0;
    sent = c->bytes_sent;
    dlrm_comm_allgatherv(c, bytes, at);
    for (int64_t i = 0; i < at[c->ranks]; i++) CHECK(c, bytes[i] == (unsigned char)(i + 1), "byte %lld is %d", (long long)i, bytes[i]);
    CHECK(c, c->bytes_sent - sent == (at[c->rank + 1] - at[c->rank]) * (c->ranks - 1), "traffic of bytes");
}

/* --- sums over samples: the tree gives the bits of one rank that adds all leaves --- */

enum { WIDTH = 1237, LEAVES = 32 };

static float leaf_value(int leaf, int element)
{
    return (dlrm_rng_uniform(3, (uint64_t)leaf, (uint64_t)element) - 0.5f) * ldexpf(1, leaf % 20);
}

static void add_row(void *ctx, int into, int from)
{
    float(*rows)[WIDTH] = ctx;
    for (int i = 0; i < WIDTH; i++) rows[into][i] += rows[from][i];
}

/* Partial sums of leaves [first, first+n), by the tree, in rows[0]. */
static void sum_leaves(int first, int n, float (*rows)[WIDTH])
{
    for (int k = 0; k < n; k++)
        for (int i = 0; i < WIDTH; i++) rows[k][i] = leaf_value(first + k, i);
    dlrm_tree_fold(n, NULL, add_row, rows);
}

static void check_reduce(dlrm_comm *c, bool deterministic)
{
    static float rows[64][WIDTH], want[WIDTH], nodes[DLRM_MAX_NODES * WIDTH];
    int leaves = deterministic ? LEAVES : c->ranks;
    dlrm_reduce r;
    static dlrm_cut cut;
    sum_leaves(0, leaves, rows);
    memcpy(want, rows[0], sizeof want);

    CHECK(c, dlrm_reduce_open(c, WIDTH, deterministic, LEAVES, &r) == DLRM_OK, "%s", dlrm_error_message());
    int first = dlrm_tree_first_leaf(c->rank, c->ranks, deterministic, LEAVES);
    dlrm_cut_make(1000, c->rank, c->ranks, deterministic, LEAVES, &cut);
    for (int i = 0; i < cut.n_nodes; i++) {
        sum_leaves(first + cut.node[i].leaf, 1 << cut.node[i].level, rows);
        memcpy(nodes + i * WIDTH, rows[0], sizeof want);
    }
    int64_t sent = c->bytes_sent;
    dlrm_reduce_run(&r, c, nodes);
    CHECK(c, c->bytes_sent - sent == dlrm_reduce_bytes(&r, c->rank, c->ranks), "%lld bytes, %lld expected",
          (long long)(c->bytes_sent - sent), (long long)dlrm_reduce_bytes(&r, c->rank, c->ranks));
    for (int i = 0; i < WIDTH; i++)
        CHECK(c, memcmp(&nodes[i], &want[i], sizeof(float)) == 0, "deterministic %d, element %d: %.9g, expected %.9g",
              deterministic, i, (double)nodes[i], (double)want[i]);

    double all[64 * DLRM_MAX_NODES], mine[DLRM_MAX_NODES] = {0}, total = 0;
    for (int i = 0; i < cut.n_nodes; i++) mine[i] = c->rank * 100 + i;
    dlrm_comm_allgather(c, mine, sizeof mine, all);
    for (int p = 0; p < c->ranks; p++)
        for (int i = 0; i < r.first_node[p + 1] - r.first_node[p]; i++)
            total += all[p * DLRM_MAX_NODES + i]; /* integers: exact */
    CHECK(c, dlrm_reduce_fold_f64(&r, c->ranks, all, DLRM_MAX_NODES) == total, "sum of doubles");
    dlrm_reduce_close(&r);
}

/* Each rank writes its number into its place of every rank's block; the blocks are 1 page and more a rank, and one byte. */
static void check_shared(dlrm_comm *c)
{
    dlrm_shared s, tiny;
    const int64_t mine = 5000 * (c->rank + 1), before = dlrm_mem_live_bytes();
    CHECK(c, dlrm_shared_open(c, mine, &s) == DLRM_OK && s.blocks, "%s", dlrm_error_message());
    CHECK(c, dlrm_shared_open(c, 0, &tiny) == DLRM_OK && tiny.blocks, "a block of nothing");
    if (!s.blocks || !tiny.blocks) return;
    int64_t others = 0;
    for (int64_t i = 0; i < mine; i++) others += ((char *)s.blocks[c->rank])[i];
    CHECK(c, others == 0, "not zeroed");
    dlrm_comm_barrier(c);
    for (int p = 0; p < c->ranks; p++) {
        CHECK(c, s.bytes[p] == 5000 * (p + 1), "%lld bytes of rank %d", (long long)s.bytes[p], p);
        ((char *)s.blocks[p])[s.bytes[p] - 1 - c->rank] = (char)(c->rank + 1);
    }
    dlrm_comm_barrier(c);
    for (int p = 0; p < c->ranks; p++) CHECK(c, ((char *)s.blocks[c->rank])[mine - 1 - p] == p + 1, "what rank %d wrote", p);
    dlrm_shared_close(&tiny);
    dlrm_shared_close(&s);
    CHECK(c, dlrm_mem_live_bytes() == before, "%lld bytes are still counted", (long long)(dlrm_mem_live_bytes() - before));
}

/* Where one rank cannot, for want of files or of their size, none does. */
static void check_not_shared(dlrm_comm *c, int resource)
{
    struct rlimit most, none = {0, 0};
    dlrm_shared s;
    CHECK(c, getrlimit(resource, &most) == 0, "limit");
    none.rlim_max = most.rlim_max;
    if (c->rank == c->ranks - 1) CHECK(c, setrlimit(resource, &none) == 0, "limit");
    CHECK(c, dlrm_shared_open(c, 100, &s) == DLRM_OK && !s.blocks, "%s", dlrm_error_message());
    CHECK(c, setrlimit(resource, &most) == 0, "limit");
}

int main(int argc, char **argv)
{
    dlrm_comm c;
    if (dlrm_comm_open(&argc, &argv, &c) != DLRM_OK) {
        fprintf(stderr, "%s\n", dlrm_error_message());
        return 1;
    }
    if (argc > 1 && strcmp(argv[1], "hang") == 0) {
        dlrm_comm_set_timeout(&c, 2);
        if (c.rank == 1) sleep(60);
        dlrm_comm_barrier(&c);
        return 0;
    }
    dlrm_comm_set_timeout(&c, 30);
    if (c.ranks > 64) return 1;
    int64_t blocks = dlrm_mem_live_blocks();
    check_agree(&c);
    check_small(&c);
    check_pulse(&c);
    check_alltoallv(&c, false);
    check_alltoallv(&c, true);
    check_allgatherv(&c);
    check_reduce(&c, true);
    check_reduce(&c, false);
    check_shared(&c);
    check_not_shared(&c, RLIMIT_NOFILE);
    check_not_shared(&c, RLIMIT_FSIZE);
    CHECK(&c, dlrm_mem_live_blocks() == blocks, "%lld blocks are left", (long long)(dlrm_mem_live_blocks() - blocks));
    int code = verdict(&c);
    dlrm_comm_close(&c);
    return code;
}
