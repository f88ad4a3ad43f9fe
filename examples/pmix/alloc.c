/* Requests resources from inside a job, through PMIx (RFC 0005).
 *
 *     cc -o alloc alloc.c $(pkg-config --cflags --libs pmix)
 *     penstock run -n3 --pmix ./alloc new:nodes=12,id=MYALLOCATION
 *
 * Rank 0 sends the requests, rank 1 waits for the event that ends the first, and the others poll its status.
 *
 *     alloc [--late] [--count N] [--abort STATUS] [REQUEST...]
 *
 * REQUEST is `new`, `extend`, `release`, `reacquire`, `cancel` or a directive's number, and after a colon, with commas
 * between them:
 *     id=TEXT      the request's id, by which other ranks find it (they watch the first request)
 *     alloc=TEXT   an existing allocation
 *     nodes=N, cpus=N, time=SECONDS, hosts=HOST   (one host; several with '+' between them)
 *     timeout=SECONDS   how long the request may wait
 *     required     reject the request if an attribute cannot be honoured
 *     nowait       send the next request before the response to this one
 * REQUEST `status` prints the status of all requests of the job.
 * --late: rank 1 registers for the event after the requests have ended.
 * --count N: send the first request N times at once.
 * --abort STATUS: rank 0 aborts the job instead.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <pmix.h>

/* Names that libraries before version 5 lack. */
#ifndef PMIX_ALLOC_REQ_CANCEL
#define PMIX_ALLOC_REQ_CANCEL 5
#endif
#ifndef PMIX_NOTIFY_ALLOC_COMPLETE
#define PMIX_NOTIFY_ALLOC_COMPLETE -105
#endif
/* The request's status code, in queries and events; 1 while it is pending. */
#define STATUS_KEY "penstock.alloc.status"
#define WAITS 1
#define MAX_INFOS 8

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pmix_proc_t me;
static const char *watched = NULL;
static bool event_came = false;

/* A request, and its response. */
typedef struct {
    const char *name;
    const char *id;
    pmix_alloc_directive_t directive;
    pmix_info_t infos[MAX_INFOS];
    size_t ninfos;
    bool nowait;
    int waiting;
    int done;
    int denied;
} request_t;

/* A query, and its response. */
typedef struct {
    bool answered;
    bool over;
    pmix_status_t status;
} poll_t;

static void fail(const char *what, pmix_status_t status)
{
    fprintf(stderr, "rank %u: %s: %s (%d)\n", me.rank, what, PMIx_Error_string(status), status);
    exit(1);
}

/* Prints an attribute on a line of its own. */
static void print_info(const char *who, const pmix_info_t *info)
{
    const pmix_value_t *value = &info->value;

    printf("rank %u: %s: %s = ", me.rank, who, info->key);
    switch (value->type) {
    case PMIX_STRING:
        printf("%s\n", value->data.string);
        break;
    case PMIX_UINT32:
        printf("%u\n", value->data.uint32);
        break;
    case PMIX_UINT64:
        printf("%llu\n", (unsigned long long)value->data.uint64);
        break;
    case PMIX_STATUS:
        printf("%d\n", value->data.status);
        break;
    default:
        printf("(type %u)\n", value->type);
    }
}

static const char *text_of(const pmix_info_t *infos, size_t ninfos, const char *key)
{
    for (size_t n = 0; n < ninfos; n++) {
        if (PMIX_CHECK_KEY(&infos[n], key) && PMIX_STRING == infos[n].value.type) {
            return infos[n].value.data.string;
        }
    }
    return NULL;
}

/* Receives the response to a request. The library owns the attributes until `release`. */
static void answered(pmix_status_t status, pmix_info_t *infos, size_t ninfos, void *cbdata,
                     pmix_release_cbfunc_t release, void *release_cbdata)
{
    request_t *request = cbdata;

    pthread_mutex_lock(&lock);
    request->done++;
    request->denied += PMIX_SUCCESS != status;
    if (1 == request->waiting) {
        printf("rank %u: %s: status %d (%s)\n", me.rank, request->name, status,
               PMIx_Error_string(status));
        for (size_t n = 0; n < ninfos; n++) {
            print_info(request->name, &infos[n]);
        }
        fflush(stdout);
    }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (NULL != release) {
        release(release_cbdata);
    }
}

static void ask(request_t *request, int count)
{
    pmix_status_t status;

    printf("rank %u: %s: asked\n", me.rank, request->name);
    fflush(stdout);
    request->waiting = count;
    for (int n = 0; n < count; n++) {
        status = PMIx_Allocation_request_nb(request->directive, request->infos, request->ninfos,
                                            answered, request);
        if (PMIX_SUCCESS != status) {
            fail("PMIx_Allocation_request_nb", status);
        }
    }
}

static void wait_for(request_t *request)
{
    pthread_mutex_lock(&lock);
    while (request->done < request->waiting) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
    if (1 != request->waiting) {
        printf("rank %u: %s: %d answers, %d denied\n", me.rank, request->name, request->done,
               request->denied);
    }
}

/* Handles the end of a request. The events of all requests of the job arrive here; the id selects the watched one. */
static void event_handler(size_t handler, pmix_status_t status, const pmix_proc_t *source,
                          pmix_info_t infos[], size_t ninfos, pmix_info_t results[],
                          size_t nresults, pmix_event_notification_cbfunc_fn_t next, void *cbdata)
{
    const char *id = text_of(infos, ninfos, PMIX_ALLOC_REQ_ID);

    (void)handler, (void)source, (void)results, (void)nresults, (void)status;
    pthread_mutex_lock(&lock);
    if (!event_came && (NULL == watched || (NULL != id && 0 == strcmp(id, watched)))) {
        for (size_t n = 0; n < ninfos; n++) {
            /* Skip the attributes that the library adds. */
            if (0 == strncmp(infos[n].key, "pmix.alloc.", 11) || PMIX_CHECK_KEY(&infos[n], STATUS_KEY) ||
                PMIX_CHECK_KEY(&infos[n], PMIX_EVENT_TEXT_MESSAGE)) {
                print_info("event", &infos[n]);
            }
        }
        fflush(stdout);
        event_came = true;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    if (NULL != next) {
        next(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, cbdata);
    }
}

static void register_for_event(void)
{
    pmix_status_t code = PMIX_NOTIFY_ALLOC_COMPLETE, status;
    pmix_info_t info;

    PMIX_INFO_CONSTRUCT(&info);
    if (NULL != watched) {
        PMIX_INFO_LOAD(&info, PMIX_ALLOC_REQ_ID, watched, PMIX_STRING);
    }
    /* Without a callback, the function returns the handler's number. */
    status = PMIx_Register_event_handler(&code, 1, &info, NULL != watched, event_handler, NULL, NULL);
    PMIX_INFO_DESTRUCT(&info);
    if (status < 0) {
        fail("PMIx_Register_event_handler", status);
    }
    printf("rank %u: registered\n", me.rank);
    fflush(stdout);
}

static void wait_for_event(void)
{
    pthread_mutex_lock(&lock);
    while (!event_came) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

/* Receives the response to a query, whose attributes include the request's status. */
static void polled(pmix_status_t status, pmix_info_t *infos, size_t ninfos, void *cbdata,
                   pmix_release_cbfunc_t release, void *release_cbdata)
{
    poll_t *answer = cbdata;

    pthread_mutex_lock(&lock);
    answer->status = status;
    for (size_t n = 0; n < ninfos; n++) {
        if (PMIX_CHECK_KEY(&infos[n], STATUS_KEY)) {
            answer->over = WAITS != infos[n].value.data.status;
        }
    }
    for (size_t n = 0; answer->over && n < ninfos; n++) {
        print_info("query", &infos[n]);
    }
    fflush(stdout);
    answer->answered = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (NULL != release) {
        release(release_cbdata);
    }
}

/* Polls until the request has ended. It is not found until rank 0 has sent it. */
static void poll_until_over(void)
{
    poll_t answer = {.over = false};
    pmix_query_t *query;
    pmix_status_t status;
    bool fresh = true;

    while (!answer.over) {
        answer.answered = false;
        PMIX_QUERY_CREATE(query, 1);
        PMIX_ARGV_APPEND(status, query->keys, PMIX_QUERY_ALLOC_STATUS);
        PMIX_QUERY_QUALIFIERS_CREATE(query, 2);
        PMIX_INFO_LOAD(&query->qualifiers[0], PMIX_ALLOC_REQ_ID, watched, PMIX_STRING);
        /* Without it, the library returns its cached response. */
        PMIX_INFO_LOAD(&query->qualifiers[1], PMIX_QUERY_REFRESH_CACHE, &fresh, PMIX_BOOL);
        status = PMIx_Query_info_nb(query, 1, polled, &answer);
        if (PMIX_SUCCESS != status) {
            fail("PMIx_Query_info_nb", status);
        }
        pthread_mutex_lock(&lock);
        while (!answer.answered) {
            pthread_cond_wait(&changed, &lock);
        }
        pthread_mutex_unlock(&lock);
        PMIX_QUERY_FREE(query, 1);
        if (PMIX_SUCCESS != answer.status && PMIX_ERR_NOT_FOUND != answer.status) {
            fail("query", answer.status);
        }
        if (!answer.over) {
            usleep(10000);
        }
    }
}

/* Receives the response to a query for all requests: each is an array of attributes. */
static void listed(pmix_status_t status, pmix_info_t *infos, size_t ninfos, void *cbdata,
                   pmix_release_cbfunc_t release, void *release_cbdata)
{
    request_t *request = cbdata;

    pthread_mutex_lock(&lock);
    printf("rank %u: status: status %d (%s)\n", me.rank, status, PMIx_Error_string(status));
    for (size_t n = 0; n < ninfos; n++) {
        if (PMIX_DATA_ARRAY == infos[n].value.type && PMIX_CHECK_KEY(&infos[n], PMIX_QUERY_ALLOC_STATUS)) {
            const pmix_data_array_t *array = infos[n].value.data.darray;
            for (size_t i = 0; i < array->size; i++) {
                print_info("status", &((pmix_info_t *)array->array)[i]);
            }
        }
    }
    fflush(stdout);
    request->done++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (NULL != release) {
        release(release_cbdata);
    }
}

static void list(request_t *request)
{
    pmix_query_t query;
    pmix_status_t status;
    bool fresh = true;

    PMIX_QUERY_CONSTRUCT(&query);
    PMIX_ARGV_APPEND(status, query.keys, PMIX_QUERY_ALLOC_STATUS);
    PMIX_QUERY_QUALIFIERS_CREATE(&query, 1);
    PMIX_INFO_LOAD(&query.qualifiers[0], PMIX_QUERY_REFRESH_CACHE, &fresh, PMIX_BOOL);
    request->waiting = 1;
    status = PMIx_Query_info_nb(&query, 1, listed, request);
    if (PMIX_SUCCESS != status) {
        fail("PMIx_Query_info_nb", status);
    }
    wait_for(request);
    PMIX_QUERY_DESTRUCT(&query);
}

static uint32_t job_value(const char *key)
{
    pmix_value_t *value;
    pmix_proc_t job;
    pmix_status_t status;
    uint32_t number;

    PMIX_LOAD_PROCID(&job, me.nspace, PMIX_RANK_WILDCARD);
    status = PMIx_Get(&job, key, NULL, 0, &value);
    if (PMIX_SUCCESS != status) {
        fail(key, status);
    }
    number = value->data.uint32;
    PMIX_VALUE_RELEASE(value);
    return number;
}

/* Waits until all ranks have called it. */
static void meet(void)
{
    pmix_proc_t job;
    pmix_status_t status;

    PMIX_LOAD_PROCID(&job, me.nspace, PMIX_RANK_WILDCARD);
    status = PMIx_Fence(&job, 1, NULL, 0);
    if (PMIX_SUCCESS != status) {
        fail("PMIx_Fence", status);
    }
}

static void usage(const char *word)
{
    fprintf(stderr, "alloc: `%s`: expected a request, such as new:nodes=12,id=MYALLOCATION\n", word);
    exit(2);
}

static void add(request_t *request, const char *key, void *value, pmix_data_type_t type)
{
    if (MAX_INFOS == request->ninfos) {
        usage(request->name);
    }
    PMIX_INFO_LOAD(&request->infos[request->ninfos], key, value, type);
    request->ninfos++;
}

/* Parses a request; changes `word`. */
static void read_request(request_t *request, char *word)
{
    static const char *directives[] = {"", "new", "extend", "release", "reacquire", "cancel"};
    char *rest = strchr(word, ':'), *item, *value, *plus;
    bool required = false;

    memset(request, 0, sizeof(*request));
    request->name = word;
    if (NULL != rest) {
        *rest++ = '\0';
    }
    for (int n = PMIX_ALLOC_NEW; n <= PMIX_ALLOC_REQ_CANCEL; n++) {
        if (0 == strcmp(word, directives[n])) {
            request->directive = n;
        }
    }
    if (0 == request->directive) {
        request->directive = strtoul(word, NULL, 10);
    }
    if (0 == request->directive && 0 != strcmp(word, "status")) {
        usage(word);
    }
    while (NULL != (item = strsep(&rest, ","))) {
        value = strchr(item, '=');
        if (NULL != value) {
            *value++ = '\0';
        }
        if (0 == strcmp(item, "required")) {
            required = true;
        } else if (0 == strcmp(item, "nowait")) {
            request->nowait = true;
        } else if (NULL == value) {
            usage(item);
        } else if (0 == strcmp(item, "id")) {
            request->id = value;
            add(request, PMIX_ALLOC_REQ_ID, value, PMIX_STRING);
        } else if (0 == strcmp(item, "alloc")) {
            add(request, PMIX_ALLOC_ID, value, PMIX_STRING);
        } else if (0 == strcmp(item, "hosts")) {
            while (NULL != (plus = strchr(value, '+'))) {
                *plus = ',';
            }
            add(request, PMIX_ALLOC_NODE_LIST, value, PMIX_STRING);
        } else {
            uint64_t number = strtoull(value, NULL, 10);
            uint32_t seconds = (uint32_t)number;
            int limit = (int)number;
            if (0 == strcmp(item, "nodes")) {
                add(request, PMIX_ALLOC_NUM_NODES, &number, PMIX_UINT64);
            } else if (0 == strcmp(item, "cpus")) {
                add(request, PMIX_ALLOC_NUM_CPUS, &number, PMIX_UINT64);
            } else if (0 == strcmp(item, "time")) {
                add(request, PMIX_ALLOC_TIME, &seconds, PMIX_UINT32);
            } else if (0 == strcmp(item, "timeout")) {
                add(request, PMIX_TIMEOUT, &limit, PMIX_INT);
            } else {
                usage(item);
            }
        }
    }
    for (size_t n = 0; required && n < request->ninfos; n++) {
        PMIX_INFO_REQUIRED(&request->infos[n]);
    }
}

int main(int argc, char **argv)
{
    request_t *requests = calloc(argc, sizeof(*requests));
    int nrequests = 0, count = 1, abort_status = 0;
    bool late = false, aborts = false;
    pmix_status_t status;

    for (int n = 1; n < argc; n++) {
        if (0 == strcmp(argv[n], "--late")) {
            late = true;
        } else if (0 == strcmp(argv[n], "--count") && n + 1 < argc) {
            count = atoi(argv[++n]);
        } else if (0 == strcmp(argv[n], "--abort") && n + 1 < argc) {
            aborts = true;
            abort_status = atoi(argv[++n]);
        } else {
            read_request(&requests[nrequests++], argv[n]);
        }
    }
    watched = requests[0].id;

    status = PMIx_Init(&me, NULL, 0);
    if (PMIX_SUCCESS != status) {
        fail("PMIx_Init", status);
    }
    printf("rank %u: %u tasks in a universe of %u, %u of them here\n", me.rank,
           job_value(PMIX_JOB_SIZE), job_value(PMIX_UNIV_SIZE), job_value(PMIX_LOCAL_SIZE));
    fflush(stdout);

    if (1 == me.rank && !late && 0 < nrequests) {
        register_for_event();
    }
    meet();
    if (0 == me.rank) {
        if (aborts) {
            PMIx_Abort(abort_status, "given up", NULL, 0);
            free(requests);
            return abort_status;
        }
        for (int n = 0; n < nrequests; n++) {
            if (0 == requests[n].directive) {
                list(&requests[n]);
                continue;
            }
            ask(&requests[n], 0 == n ? count : 1);
            if (!requests[n].nowait) {
                wait_for(&requests[n]);
            }
        }
        for (int n = 0; n < nrequests; n++) {
            if (requests[n].nowait) {
                wait_for(&requests[n]);
            }
        }
    }
    if (late) {
        meet();
        if (1 == me.rank) {
            register_for_event();
        }
    }
    if (1 == me.rank && 0 < nrequests) {
        wait_for_event();
    }
    if (1 < me.rank && NULL != watched) {
        poll_until_over();
    }

    status = PMIx_Finalize(NULL, 0);
    if (PMIX_SUCCESS != status) {
        fail("PMIx_Finalize", status);
    }
    for (int n = 0; n < nrequests; n++) {
        for (size_t i = 0; i < requests[n].ninfos; i++) {
            PMIX_INFO_DESTRUCT(&requests[n].infos[i]);
        }
    }
    free(requests);
    return 0;
}
