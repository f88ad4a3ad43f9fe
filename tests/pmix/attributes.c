/* Sends requests, one after another, with the attributes that the arguments name:
 *
 *     attributes DIRECTIVE [KEY:TYPE=VALUE[!]]... [then DIRECTIVE ...]
 *
 * With `!` it is required. TYPE is string, uint32, uint64, int, float, blank (no key), regex (a list of hosts, as
 * PMIx_generate_regex writes it), network (an array: the network's id, bandwidth and quality of service) or nodes
 * (an array: a list of hosts, and after a slash one of cpus). Prints the responses.
 */

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pmix.h>
#include <pmix_server.h>

#define MAX_INFOS 16

/* The attributes in an array, at most three. */
static void load_array(pmix_info_t *info, const char *key, char *value, bool network)
{
    pmix_data_array_t *array;
    pmix_info_t *inner;
    float bandwidth = 1.5f;
    char *rest = strchr(value, '/');

    if (NULL != rest) {
        *rest++ = '\0';
    }
    PMIX_DATA_ARRAY_CREATE(array, network ? 3 : 2, PMIX_INFO);
    inner = array->array;
    PMIX_INFO_LOAD(&inner[0], network ? PMIX_ALLOC_NETWORK_ID : PMIX_ALLOC_NODE_LIST, value, PMIX_STRING);
    if (network) {
        PMIX_INFO_LOAD(&inner[1], PMIX_ALLOC_BANDWIDTH, &bandwidth, PMIX_FLOAT);
        PMIX_INFO_LOAD(&inner[2], PMIX_ALLOC_NETWORK_QOS, rest, PMIX_STRING);
    } else {
        PMIX_INFO_LOAD(&inner[1], PMIX_ALLOC_NUM_CPU_LIST, rest, PMIX_STRING);
    }
    PMIX_LOAD_KEY(info->key, key);
    info->value.type = PMIX_DATA_ARRAY;
    info->value.data.darray = array;
}

static void load(pmix_info_t *info, char *word)
{
    char *type = strchr(word, ':'), *value = strchr(word, '='), *regex = NULL;
    bool required = '!' == word[strlen(word) - 1];

    if (NULL == type || NULL == value) {
        fprintf(stderr, "attributes: `%s`: expected KEY:TYPE=VALUE\n", word);
        exit(2);
    }
    *type++ = *value++ = '\0';
    if (required) {
        value[strlen(value) - 1] = '\0';
    }
    PMIX_INFO_CONSTRUCT(info);
    if (0 == strcmp(type, "string")) {
        PMIX_INFO_LOAD(info, word, value, PMIX_STRING);
    } else if (0 == strcmp(type, "regex")) {
        char *hosts = strdup(value);
        if (PMIX_SUCCESS != PMIx_generate_regex(hosts, &regex)) {
            exit(3);
        }
        /* 5.0.7 writes `raw:` and no hosts. */
        PMIX_INFO_LOAD(info, word, 0 == strcmp(regex, "raw:") ? value : regex, PMIX_STRING);
        free(regex);
        free(hosts);
    } else if (0 == strcmp(type, "network") || 0 == strcmp(type, "nodes")) {
        load_array(info, word, value, 0 == strcmp(type, "network"));
    } else if (0 == strcmp(type, "float")) {
        float number = strtof(value, NULL);
        PMIX_INFO_LOAD(info, word, &number, PMIX_FLOAT);
    } else if (0 == strcmp(type, "uint32")) {
        uint32_t number = strtoul(value, NULL, 10);
        PMIX_INFO_LOAD(info, word, &number, PMIX_UINT32);
    } else if (0 == strcmp(type, "uint64")) {
        uint64_t number = strtoull(value, NULL, 10);
        PMIX_INFO_LOAD(info, word, &number, PMIX_UINT64);
    } else if (0 == strcmp(type, "int")) {
        int number = atoi(value);
        PMIX_INFO_LOAD(info, word, &number, PMIX_INT);
    } else if (0 != strcmp(type, "blank")) {
        fprintf(stderr, "attributes: `%s`: no such type\n", type);
        exit(2);
    }
    if (required) {
        PMIX_INFO_REQUIRED(info);
    }
}

/* Sends one request with the attributes that `count` words name, and prints the response. */
static void ask(int count, char **words)
{
    pmix_info_t infos[MAX_INFOS], *results = NULL;
    size_t nresults = 0;

    if (0 == count || MAX_INFOS < count - 1) {
        exit(2);
    }
    for (int n = 1; n < count; n++) {
        load(&infos[n - 1], words[n]);
    }
    printf("status: %d\n",
           PMIx_Allocation_request(atoi(words[0]), infos, count - 1, &results, &nresults));
    for (size_t n = 0; n < nresults; n++) {
        if (PMIX_STRING == results[n].value.type) {
            printf("%s = %s\n", results[n].key, results[n].value.data.string);
        } else if (PMIX_UINT32 == results[n].value.type) {
            printf("%s = %u\n", results[n].key, results[n].value.data.uint32);
        }
    }
    if (NULL != results) {
        PMIX_INFO_FREE(results, nresults);
    }
    for (int n = 1; n < count; n++) {
        PMIX_INFO_DESTRUCT(&infos[n - 1]);
    }
}

int main(int argc, char **argv)
{
    pmix_proc_t me;
    int first = 1;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (PMIX_SUCCESS != PMIx_Init(&me, NULL, 0)) {
        return 1;
    }
    for (int n = 1; n <= argc; n++) {
        if (n == argc || 0 == strcmp(argv[n], "then")) {
            ask(n - first, &argv[first]);
            first = n + 1;
        }
    }
    return PMIX_SUCCESS == PMIx_Finalize(NULL, 0) ? 0 : 1;
}
