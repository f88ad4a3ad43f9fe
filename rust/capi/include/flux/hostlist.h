/* The functions of flux-core's hostlist.h, by libpenstock: programs that use them need no change. */
#ifndef FLUX_HOSTLIST_H
#define FLUX_HOSTLIST_H

#ifdef __cplusplus
extern "C" {
#endif

struct hostlist;
struct hostlist_hostname;

/* Functions that fail return NULL or -1 and set errno: EINVAL for an invalid argument, ERANGE for too many hosts, ENOENT for
 * a host or a position that is not in the list. */
struct hostlist *hostlist_create(void);
void hostlist_destroy(struct hostlist *hl);
struct hostlist *hostlist_decode(const char *s);
struct hostlist *hostlist_copy(const struct hostlist *hl);

/* The caller frees the text. */
char *hostlist_encode(struct hostlist *hl);

/* The number of appended hosts. */
int hostlist_append(struct hostlist *hl, const char *hosts);
int hostlist_append_list(struct hostlist *hl1, struct hostlist *hl2);

/* The cursor moves to what is found. */
const char *hostlist_nth(struct hostlist *hl, int n);
int hostlist_find(struct hostlist *hl, const char *hostname);
struct hostlist_hostname *hostlist_hostname_create(const char *hostname);
void hostlist_hostname_destroy(struct hostlist_hostname *hn);
int hostlist_find_hostname(struct hostlist *hl, struct hostlist_hostname *hn);

/* The number of removed hosts. */
int hostlist_delete(struct hostlist *hl, const char *hosts);

int hostlist_count(struct hostlist *hl);
#define hostlist_is_empty(hl) (hostlist_count(hl) == 0)
void hostlist_sort(struct hostlist *hl);
void hostlist_uniq(struct hostlist *hl);

/* The host at the cursor after its move, or NULL. The text is valid until the next call with this list. */
const char *hostlist_first(struct hostlist *hl);
const char *hostlist_last(struct hostlist *hl);
const char *hostlist_next(struct hostlist *hl);
const char *hostlist_current(struct hostlist *hl);

/* 1 if the host at the cursor was removed, 0 if there is none. */
int hostlist_remove_current(struct hostlist *hl);

#ifdef __cplusplus
}
#endif

#endif
