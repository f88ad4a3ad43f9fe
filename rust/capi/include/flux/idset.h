/* The functions of flux-core's idset.h, by libpenstock: programs that use them need no change. */
#ifndef FLUX_IDSET_H
#define FLUX_IDSET_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct idset;

enum idset_flags {
    IDSET_FLAG_AUTOGROW = 1,    /* the universe grows if an id beyond it is set */
    IDSET_FLAG_BRACKETS = 2,    /* encode: brackets around several ids */
    IDSET_FLAG_RANGE = 4,       /* encode: ranges */
    IDSET_FLAG_INITFULL = 8,    /* all ids of the universe are set at first */
    IDSET_FLAG_COUNT_LAZY = 16, /* no effect: counts cost nothing */
    IDSET_FLAG_ALLOC_RR = 32,   /* each allocation continues behind the last one */
};

typedef struct {
    char text[160];
} idset_error_t;

#define IDSET_INVALID_ID (UINT_MAX - 1)
#define IDSET_MAX_UNIVERSE ((size_t)(INT_MAX) + 1)

/* Functions that fail return NULL or -1 and set errno: EINVAL for an invalid argument, ERANGE for an id beyond the largest
 * universe, EEXIST for the return of an id that was not allocated. `error` may be NULL. */
struct idset *idset_create(size_t size, int flags);
void idset_destroy(struct idset *idset);
size_t idset_universe_size(const struct idset *idset);
struct idset *idset_copy(const struct idset *idset);

/* The caller frees the text. */
char *idset_encode(const struct idset *idset, int flags);

/* A negative `len` is the length of the text; a negative `size` is the smallest universe for its ids. */
struct idset *idset_decode(const char *s);
struct idset *idset_ndecode(const char *s, size_t len);
struct idset *idset_decode_ex(const char *s, ssize_t len, ssize_t size, int flags,
                              idset_error_t *error);
bool idset_decode_empty(const char *s, ssize_t len);
int idset_decode_info(const char *s, ssize_t len, size_t *count, unsigned int *maxid,
                      idset_error_t *error);
int idset_decode_add(struct idset *idset, const char *s, ssize_t len, idset_error_t *error);
int idset_decode_subtract(struct idset *idset, const char *s, ssize_t len, idset_error_t *error);

int idset_set(struct idset *idset, unsigned int id);
int idset_range_set(struct idset *idset, unsigned int lo, unsigned int hi);
int idset_clear(struct idset *idset, unsigned int id);
int idset_range_clear(struct idset *idset, unsigned int lo, unsigned int hi);
bool idset_test(const struct idset *idset, unsigned int id);

/* IDSET_INVALID_ID if there is none. */
unsigned int idset_first(const struct idset *idset);
unsigned int idset_next(const struct idset *idset, unsigned int id);
unsigned int idset_last(const struct idset *idset);
unsigned int idset_prev(const struct idset *idset, unsigned int id);

size_t idset_count(const struct idset *idset);
bool idset_empty(const struct idset *idset);
bool idset_equal(const struct idset *a, const struct idset *b);
bool idset_has_intersection(const struct idset *a, const struct idset *b);

struct idset *idset_union(const struct idset *a, const struct idset *b);
struct idset *idset_difference(const struct idset *a, const struct idset *b);
struct idset *idset_intersect(const struct idset *a, const struct idset *b);
int idset_add(struct idset *a, const struct idset *b);
int idset_subtract(struct idset *a, const struct idset *b);
#define idset_clear_all(x) idset_subtract((x), (x))

/* Ids are allocated from a set with IDSET_FLAG_INITFULL, and returned to it. */
int idset_alloc(struct idset *idset, unsigned int *val);
void idset_free(struct idset *idset, unsigned int val);
int idset_free_check(struct idset *idset, unsigned int val);

#ifdef __cplusplus
}
#endif

#endif
