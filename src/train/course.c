#include "train/course.h"

int64_t dlrm_course_position(const dlrm_session *s, int64_t step)
{
    return step - s->first_step + s->first_batch;
}

int64_t dlrm_course_steps(const dlrm_session *s)
{
    const int64_t steps = s->cfg.train.steps, epochs = s->cfg.train.epochs, per_epoch = dlrm_session_epoch_batches(s);
    int64_t end;
    if (epochs == 0) return steps;
    if (__builtin_mul_overflow(epochs, per_epoch, &end) || end > INT64_MAX / 2) end = INT64_MAX / 2;
    end += s->first_step - s->first_batch;
    return steps > 0 && steps < end ? steps : end;
}

bool dlrm_course_evaluates(const dlrm_session *s, int64_t step)
{
    if (!dlrm_session_has_test(s)) return false;
    if (s->cfg.eval.every_steps > 0 && step % s->cfg.eval.every_steps == 0) return true;
    return s->cfg.eval.every_epoch && (dlrm_course_position(s, step) % dlrm_session_epoch_batches(s) == 0 || step == dlrm_course_steps(s));
}

/* Steps in (first, last] that are multiples of both k and e, where e is counted from `shift` steps before. They come in the rhythm of
 * the least common multiple: the first one is looked for among the multiples of the larger number, so that a run without end
 * costs no more than a short one. */
static int64_t coincidences(int64_t first, int64_t last, int64_t k, int64_t e, int64_t shift)
{
    const bool by_epoch = e > k;
    const int64_t step = by_epoch ? e : k, other = by_epoch ? k : e, offset = by_epoch ? shift : 0, rest = by_epoch ? 0 : shift;
    int64_t at = ((first + offset) / step + 1) * step - offset;
    for (int64_t tried = 0; at <= last && tried < other; tried++, at += step) {
        if ((at + rest) % other != 0) continue;
        int64_t a = step, b = other;
        while (b) {
            const int64_t c = a % b;
            a = b;
            b = c;
        }
        return 1 + (last - at) / step / (other / a);
    }
    return 0;
}

/* Evaluations after steps (first, last]. */
static int64_t evaluations(const dlrm_session *s, int64_t first, int64_t last)
{
    const int64_t k = s->cfg.eval.every_steps, e = dlrm_session_epoch_batches(s), shift = s->first_batch - s->first_step;
    int64_t n = k > 0 ? last / k - first / k : 0;
    if (!s->cfg.eval.every_epoch) return n;
    n += (last + shift) / e - (first + shift) / e - (k > 0 ? coincidences(first, last, k, e, shift) : 0);
    return n + ((last + shift) % e != 0 && (k == 0 || last % k != 0));
}

int64_t dlrm_course_evaluations(const dlrm_session *s)
{
    const int64_t first = s->first_step, last = dlrm_course_steps(s);
    if (!dlrm_session_has_test(s)) return 0;
    const bool due = first > 0 && !s->from.manifest.progress.evaluated && dlrm_course_evaluates(s, first);
    return due + (last > first ? evaluations(s, first, last) : 0);
}
