#include "train/machine.h"

#include <string.h>

#include "base/yaml.h"
#include "model/placement_cost.h"
#include "train/device.h"

enum { MAX_BYTES = 1 << 20 };
static const double GIB = 1 << 30;

typedef struct key {
    const char *name;
    double *to, unit;
} key;

static dlrm_status read_device(const dlrm_yaml *node, dlrm_machine *m)
{
    char found[64];
    const bool cpu = node->kind == DLRM_YAML_SCALAR && strcmp(node->text, "cpu") == 0;
    m->device = cpu ? DLRM_DEVICE_CPU : DLRM_DEVICE_CUDA;
    if (cpu || (node->kind == DLRM_YAML_SCALAR && strcmp(node->text, "cuda") == 0)) return DLRM_OK;
    return dlrm_yaml_fail(node, "device: found \"%s\", expected cpu or cuda", dlrm_yaml_describe(node, found, sizeof found));
}

static dlrm_status read_number(const dlrm_yaml *node, const key *k)
{
    char found[64];
    double value;
    if (node->kind != DLRM_YAML_SCALAR || !dlrm_yaml_float(node, &value) || value < 1e-6 || value > 1e9)
        return dlrm_yaml_fail(node, "%s: found \"%s\", expected a number from 1e-6 to 1e9", k->name, dlrm_yaml_describe(node, found, sizeof found));
    *k->to = value * k->unit;
    return DLRM_OK;
}

static dlrm_status read_machine(const dlrm_yaml *root, dlrm_machine *m)
{
    const key keys[] = {{"memory_gib", &m->memory_gib, 1}, {"host_memory_gib", &m->host_memory_gib, 1}, {"memory_gb_s", &m->memory_rate, 1e9},
                        {"network_gb_s", &m->network_rate, 1e9}, {"link_gb_s", &m->link_rate, 1e9}, {"tflops", &m->flop_rate, 1e12}};
    enum { KEYS = sizeof keys / sizeof *keys };
    if (root->kind != DLRM_YAML_MAP) return dlrm_yaml_fail(root, "expected a map of a rank's device, memory and rates");
    if (!dlrm_yaml_get(root, "device")) return dlrm_yaml_fail(root, "device: missing, expected cpu or cuda");
    TRY(read_device(dlrm_yaml_get(root, "device"), m));
    for (int i = 0; i < root->n; i++) {
        const char *name = root->keys[i]->text;
        int k = 0;
        while (k < KEYS && strcmp(keys[k].name, name) != 0) k++;
        if (k < KEYS) TRY(read_number(root->items[i], &keys[k]));
        if (k == KEYS && strcmp(name, "device") != 0)
            return dlrm_yaml_fail(root->keys[i], "%.60s: unknown key; expected device, memory_gib, host_memory_gib, memory_gb_s, network_gb_s, "
                                  "link_gb_s or tflops", name);
    }
    return DLRM_OK;
}

dlrm_status dlrm_machine_load(const char *path, dlrm_machine *m)
{
    dlrm_yaml_doc doc;
    *m = (dlrm_machine){.name = path};
    TRY(dlrm_yaml_load(path, MAX_BYTES, &doc));
    const dlrm_status st = read_machine(doc.root, m);
    dlrm_yaml_clear(&doc);
    return st;
}

dlrm_status dlrm_machine_choose(const dlrm_machine *m, const dlrm_config *cfg, dlrm_comm *comm, int *device, int64_t *memory)
{
    const bool in_host = cfg->parallel.device_embedding_elements >= 0;
    const dlrm_device asked = m->device != DLRM_DEVICE_AUTO ? m->device : cfg->device;
    if (m->name && cfg->device != DLRM_DEVICE_AUTO && cfg->device != m->device)
        return dlrm_config_fail(cfg, "device", "is %s, but %s has device: %s", cfg->device == DLRM_DEVICE_CPU ? "cpu" : "cuda", m->name,
                                m->device == DLRM_DEVICE_CPU ? "cpu" : "cuda");
    *device = 0;
    if (asked == DLRM_DEVICE_AUTO) TRY(dlrm_device_choose(cfg, comm, device));
    if (asked == DLRM_DEVICE_CPU) *device = -1;
    if (*device < 0) TRY(dlrm_device_check_cpu(cfg));
    *memory = (int64_t)((*device < 0 || in_host ? m->host_memory_gib : m->memory_gib) * GIB) / 10 * 9;
    return DLRM_OK;
}

void dlrm_machine_rates(const dlrm_machine *m, bool gpu, dlrm_placement_work *w)
{
    dlrm_placement_rates(gpu, w);
    if (m && m->memory_rate > 0) w->memory_rate = m->memory_rate;
    if (m && m->network_rate > 0) {
        w->sums_rate *= m->network_rate / w->network_rate;
        w->network_rate = m->network_rate;
    }
    if (m && m->link_rate > 0) w->link_rate = m->link_rate;
}

double dlrm_machine_flops(const dlrm_machine *m, bool gpu, dlrm_dtype precision)
{
    if (m && m->flop_rate > 0) return m->flop_rate;
    if (!gpu) return 100e9;
    return precision == DLRM_FP32 ? 47e12 : precision == DLRM_TF32 ? 195e12 : 478e12;
}
