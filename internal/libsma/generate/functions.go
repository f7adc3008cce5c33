package main

import "strings"

// function is one function of the library.
type function struct {
	ret, name, params string
	body              string // a C statement, without its semicolon
	chapter           string
	deprecated        bool
}

// bare returns the name behind "shmem_", and whether the function's name begins so. Such a
// function has a second name for profiling.
func (f function) bare() (string, bool) { return strings.CutPrefix(f.name, "shmem_") }

// family is a row of the table: functions that differ in types, sizes and contexts.
//
// In ret, params and body TYPE is the type, in body FOLD what reductions call it, SIZE the
// bits of an element, CTX the context and NAME the name for messages.
type family struct {
	ret, name, params string
	body              string
	types             set  // one function for each; none if the set is empty
	sizes, mem        bool // one function for each size in bits, as put32, and one for bytes, as putmem
	ctx               bool // each also with a context as its first argument
	// generic is the name of the type-generic macro; "-": none, "": the family's name.
	generic    string
	deprecated bool
}

// chapter is a part of the header.
type chapter struct {
	title    string
	families []family
}

const (
	rmaParams    = "TYPE *dest, const TYPE *source, size_t nelems, int pe"
	iParams      = "TYPE *dest, const TYPE *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe"
	ibParams     = "TYPE *dest, const TYPE *source, ptrdiff_t dst, ptrdiff_t sst, size_t bsize, size_t nblocks, int pe"
	signalParams = "TYPE *dest, const TYPE *source, size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe"
	bytesOf      = "sma_bytes(nelems, sizeof(TYPE))"
)

// block returns the typed and the untyped family of a put or get.
func block(name, params, body string) []family {
	untyped := strings.ReplaceAll(params, "TYPE", "void")
	return []family{
		{ret: "void", name: name, params: params, body: body, types: rma, ctx: true},
		{ret: "void", name: name, params: untyped, body: strings.ReplaceAll(body, "sizeof(TYPE)", "SIZE / 8"), sizes: true, mem: true, ctx: true, generic: "-"},
	}
}

// strided is block without a form for bytes.
func strided(name, params, body string) []family {
	fs := block(name, params, body)
	fs[1].mem = false
	return fs
}

func atomicFamilies() (fs []family) {
	const do, fetch = "sma_do(CTX, NAME, ", "return SMA_FROM(TYPE, sma_amo(CTX, NAME, "
	const bits, zero = "SMA_BITS(TYPE, value)", "0"
	add := func(name, op, params, v, cond string, types set, fetches bool, old string) {
		dest := "dest"
		if strings.Contains(params, "*source") {
			dest = "source"
		}
		args := strings.Join([]string{op, "(void *)" + dest, "sizeof(TYPE)", v, cond, "pe"}, ", ")
		f := family{ret: "void", name: "atomic_" + name, params: params, body: do + args + ")", types: types, ctx: true}
		if fetches {
			f.ret, f.body = "TYPE", fetch+args+"))"
		}
		fs = append(fs, f)
		if fetches {
			nbi := f
			nbi.ret, nbi.name, nbi.params = "void", f.name+"_nbi", "TYPE *fetch, "+params
			nbi.body = "sma_amo_nbi(CTX, NAME, fetch, " + args + ")"
			fs = append(fs, nbi)
		}
		if old != "" { // of fewer types in the specification, and of these for Sandia OpenSHMEM
			f.name, f.ctx, f.deprecated = old, false, true
			fs = append(fs, f)
		}
	}
	const dest, value = "TYPE *dest, int pe", "TYPE *dest, TYPE value, int pe"
	add("fetch", "SMA_FETCH", "const TYPE *source, int pe", zero, zero, extAMO, true, "fetch")
	add("set", "SMA_SET", value, bits, zero, extAMO, false, "set")
	add("compare_swap", "SMA_CSWAP", "TYPE *dest, TYPE cond, TYPE value, int pe", bits, "SMA_BITS(TYPE, cond)", amo, true, "cswap")
	add("swap", "SMA_SWAP", value, bits, zero, extAMO, true, "swap")
	add("fetch_inc", "SMA_ADD", dest, "1", zero, amo, true, "finc")
	add("inc", "SMA_ADD", dest, "1", zero, amo, false, "inc")
	add("fetch_add", "SMA_ADD", value, bits, zero, amo, true, "fadd")
	add("add", "SMA_ADD", value, bits, zero, amo, false, "add")
	for _, op := range []string{"and", "or", "xor"} {
		add("fetch_"+op, "SMA_"+strings.ToUpper(op), value, bits, zero, bitAMO, true, "")
		add(op, "SMA_"+strings.ToUpper(op), value, bits, zero, bitAMO, false, "")
	}
	return fs
}

func collectiveFamilies() (fs []family) {
	const team = "shmem_team_t team, TYPE *dest, const TYPE *source, "
	const active = ", int PE_start, int logPE_stride, int PE_size, long *pSync"
	const triplet = "PE_start, logPE_stride, PE_size"
	add := func(name, op, params, extra string) {
		body := "return sma_team(NAME, " + op + ", team, dest, source, nelems, sizeof(TYPE), " + extra + ")"
		fs = append(fs, family{ret: "int", name: name, params: team + params, body: body, types: rma})
		fs = append(fs, family{ret: "int", name: name + "mem", params: strings.ReplaceAll(team+params, "TYPE", "void"),
			body: strings.ReplaceAll(body, "sizeof(TYPE)", "1")})
		old := strings.TrimPrefix(strings.ReplaceAll(team+params, "TYPE", "void"), "shmem_team_t team, ") + active
		for _, size := range []string{"32", "64"} {
			fs = append(fs, family{ret: "void", name: name + size, params: old,
				body:       "(void)pSync; sma_active(NAME, " + op + ", dest, source, nelems, " + size + " / 8, " + extra + ", " + triplet + ")",
				deprecated: true})
		}
	}
	fs = append(fs,
		family{ret: "void", name: "barrier_all", params: "void", body: "sma_team(NAME, SMA_BARRIER, SHMEM_TEAM_WORLD, 0, 0, 0, 1, 0, 0)"},
		family{ret: "void", name: "sync_all", params: "void", body: "sma_team(NAME, SMA_SYNC, SHMEM_TEAM_WORLD, 0, 0, 0, 1, 0, 0)"},
		family{ret: "int", name: "team_sync", params: "shmem_team_t team", body: "return sma_team(NAME, SMA_SYNC, team, 0, 0, 0, 1, 0, 0)"},
		family{ret: "void", name: "barrier", params: active[2:], body: "(void)pSync; sma_active(NAME, SMA_BARRIER, 0, 0, 0, 1, 0, 0, " + triplet + ")", deprecated: true},
		family{ret: "void", name: "sync", params: active[2:], body: "(void)pSync; sma_active(NAME, SMA_SYNC, 0, 0, 0, 1, 0, 0, " + triplet + ")", deprecated: true},
	)
	add("broadcast", "SMA_BROADCAST", "size_t nelems, int PE_root", "PE_root, 0")
	add("collect", "SMA_COLLECT", "size_t nelems", "0, 0")
	add("fcollect", "SMA_FCOLLECT", "size_t nelems", "0, 0")
	add("alltoall", "SMA_ALLTOALL", "size_t nelems", "1, 1")
	add("alltoalls", "SMA_ALLTOALLS", "ptrdiff_t dst, ptrdiff_t sst, size_t nelems", "dst, sst")
	for _, scan := range []string{"inscan", "exscan"} {
		fs = append(fs, family{ret: "int", name: "sum_" + scan, params: team + "size_t nelems", types: reduceSum,
			body: "return sma_team(NAME, SMA_" + strings.ToUpper(scan) + ", team, dest, source, nelems, sizeof(TYPE), SMA_SUM, SMA_FOLD)"})
	}
	type operation struct {
		name            string
		types, oldTypes set
	}
	for _, op := range []operation{
		{"and", reduceBits, activeBits}, {"or", reduceBits, activeBits}, {"xor", reduceBits, activeBits},
		{"max", reduceOrder, activeOrder}, {"min", reduceOrder, activeOrder},
		{"sum", reduceSum, activeSum}, {"prod", reduceSum, activeSum},
	} {
		fold := "SMA_" + strings.ToUpper(op.name) + ", SMA_FOLD"
		fs = append(fs,
			family{ret: "int", name: op.name + "_reduce", params: team + "size_t nreduce", types: op.types,
				body: "return sma_team(NAME, SMA_REDUCE, team, dest, source, nreduce, sizeof(TYPE), " + fold + ")"},
			family{ret: "void", name: op.name + "_to_all", types: op.oldTypes, deprecated: true, generic: "-",
				params: "TYPE *dest, const TYPE *source, int nreduce, int PE_start, int logPE_stride, int PE_size, TYPE *pWrk, long *pSync",
				body:   "(void)pWrk, (void)pSync; sma_active(NAME, SMA_REDUCE, dest, source, nreduce < 0 ? 0 : (size_t)nreduce, sizeof(TYPE), " + fold + ", " + triplet + ")"})
	}
	return fs
}

func waitFamilies() (fs []family) {
	const ivars = "TYPE *ivars, size_t nelems, "
	one := func(name, params, body string) {
		fs = append(fs, family{ret: "void", name: name, params: params, body: body, types: waits})
	}
	one("wait_until", "TYPE *ivar, int cmp, TYPE cmp_value", "sma_wait(NAME, ivar, sizeof(TYPE), SMA_SIGNED(TYPE), cmp, (uint64_t)cmp_value)")
	one("test", "TYPE *ivar, int cmp, TYPE cmp_value", "return sma_test(NAME, ivar, sizeof(TYPE), SMA_SIGNED(TYPE), cmp, (uint64_t)cmp_value)")
	fs[1].ret = "int"
	for _, kind := range []string{"all", "any", "some"} {
		for _, vector := range []bool{false, true} {
			ret, indices, suffix, params, values := "size_t", "NULL", "", "TYPE cmp_value", "&cmp_value, 0"
			middle := "const int *status, int cmp, "
			if kind == "some" {
				middle, indices = "size_t *indices, "+middle, "indices"
			}
			if vector {
				suffix, params, values = "_vector", "const TYPE *cmp_values", "cmp_values, 1"
			}
			args := strings.Join([]string{"NAME", "SMA_" + strings.ToUpper(kind), "ivars", "nelems", indices, "status", "cmp", values, "sizeof(TYPE)", "SMA_SIGNED(TYPE)"}, ", ")
			wait := family{ret: ret, name: "wait_until_" + kind + suffix, params: ivars + middle + params, types: waits, body: "return sma_wait_many(" + args + ")"}
			test := family{ret: ret, name: "test_" + kind + suffix, params: ivars + middle + params, types: waits, body: "return sma_test_many(" + args + ")"}
			if kind == "all" {
				wait.ret, wait.body = "void", strings.TrimPrefix(wait.body, "return ")
				test.ret, test.body = "int", strings.Replace(test.body, "return ", "return (int)", 1)
			}
			fs = append(fs, wait, test)
		}
	}
	const ne = "SHMEM_CMP_NE"
	return append(fs,
		family{ret: "uint64_t", name: "signal_wait_until", params: "uint64_t *sig_addr, int cmp, uint64_t cmp_value", body: "return sma_wait(NAME, sig_addr, 8, 0, cmp, cmp_value)"},
		family{ret: "void", name: "wait_until", params: "long *ivar, int cmp, long cmp_value", body: "sma_wait(NAME, ivar, sizeof(long), 1, cmp, (uint64_t)cmp_value)", deprecated: true},
		family{ret: "void", name: "wait", params: "long *ivar, long cmp_value", body: "sma_wait(NAME, ivar, sizeof(long), 1, " + ne + ", (uint64_t)cmp_value)", deprecated: true},
		family{ret: "void", name: "wait", params: "TYPE *ivar, TYPE cmp_value", types: oldWait, generic: "-", deprecated: true,
			body: "sma_wait(NAME, ivar, sizeof(TYPE), 1, " + ne + ", (uint64_t)cmp_value)"})
}

// chapters is the table.
func chapters() []chapter {
	plain := func(ret, name, params, body string) family {
		return family{ret: ret, name: name, params: params, body: body}
	}
	old := func(ret, name, params, body string) family {
		return family{ret: ret, name: "=" + name, params: params, body: body, deprecated: true}
	}
	var rmas []family
	rmas = append(rmas, block("put", rmaParams, "sma_put(CTX, NAME, dest, source, "+bytesOf+", pe)")...)
	rmas = append(rmas, family{ret: "void", name: "p", params: "TYPE *dest, TYPE value, int pe", types: rma, ctx: true,
		body: "SMA_P(TYPE, CTX, NAME, dest, value, pe)"})
	rmas = append(rmas, strided("iput", iParams, "sma_ibput(CTX, NAME, dest, source, dst, sst, 1, nelems, sizeof(TYPE), pe)")...)
	rmas = append(rmas, strided("ibput", ibParams, "sma_ibput(CTX, NAME, dest, source, dst, sst, bsize, nblocks, sizeof(TYPE), pe)")...)
	rmas = append(rmas, block("get", rmaParams, "sma_get(CTX, NAME, dest, source, "+bytesOf+", pe, 0)")...)
	rmas = append(rmas, family{ret: "TYPE", name: "g", params: "const TYPE *source, int pe", types: rma, ctx: true,
		body: "SMA_G(TYPE, CTX, NAME, source, pe)"})
	rmas = append(rmas, strided("iget", iParams, "sma_ibget(CTX, NAME, dest, source, dst, sst, 1, nelems, sizeof(TYPE), pe)")...)
	rmas = append(rmas, strided("ibget", ibParams, "sma_ibget(CTX, NAME, dest, source, dst, sst, bsize, nblocks, sizeof(TYPE), pe)")...)
	rmas = append(rmas, block("put_nbi", rmaParams, "sma_put(CTX, NAME, dest, source, "+bytesOf+", pe)")...)
	rmas = append(rmas, block("get_nbi", rmaParams, "sma_get(CTX, NAME, dest, source, "+bytesOf+", pe, 1)")...)
	const signal = "sma_put_signal(CTX, NAME, dest, source, " + bytesOf + ", sig_addr, signal, sig_op, pe)"
	signals := append(block("put_signal", signalParams, signal), block("put_signal_nbi", signalParams, signal)...)
	const change = "uint64_t *sig_addr, uint64_t signal, int pe"
	signals = append(signals,
		family{ret: "void", name: "signal_set", params: change, ctx: true, body: "sma_put(CTX, NAME, sig_addr, &signal, sizeof signal, pe)"},
		family{ret: "void", name: "signal_add", params: change, ctx: true, body: "sma_do(CTX, NAME, SMA_ADD, sig_addr, sizeof *sig_addr, signal, 0, pe)"})
	signals = append(signals, plain("uint64_t", "signal_fetch", "const uint64_t *sig_addr", "return sma_signal_fetch(NAME, sig_addr)"))
	return []chapter{
		{"Setup, exit and query", []family{
			plain("void", "init", "void", "sma_init(NAME, SHMEM_THREAD_SINGLE, NULL)"),
			plain("int", "init_thread", "int requested, int *provided", "return sma_init(NAME, requested, provided)"),
			plain("void", "query_thread", "int *provided", "sma_query_thread(NAME, provided)"),
			plain("void", "query_initialized", "int *initialized", "*initialized = sma_initialized()"),
			plain("int", "my_pe", "void", "return sma_my_pe(NAME)"),
			plain("int", "n_pes", "void", "return sma_n_pes(NAME)"),
			plain("void", "finalize", "void", "sma_finalize(NAME)"),
			plain("void", "global_exit", "int status", "sma_global_exit(NAME, status)"),
			plain("int", "pe_accessible", "int pe", "return sma_pe_accessible(NAME, pe)"),
			plain("int", "addr_accessible", "const void *addr, int pe", "return sma_addr_accessible(NAME, addr, pe)"),
			plain("void *", "ptr", "const void *dest, int pe", "return sma_ptr(NAME, dest, pe)"),
			plain("void", "info_get_version", "int *major, int *minor", "*major = SHMEM_MAJOR_VERSION, *minor = SHMEM_MINOR_VERSION"),
			plain("void", "info_get_name", "char *name", "strcpy(name, SHMEM_VENDOR_STRING)"),
			plain("void", "pcontrol", "int level, ...", "(void)level"),
			old("void", "start_pes", "int npes", "(void)npes; if (!sma_initialized()) sma_init(NAME, SHMEM_THREAD_SINGLE, NULL)"),
			old("int", "_my_pe", "void", "return sma_my_pe(NAME)"),
			old("int", "_num_pes", "void", "return sma_n_pes(NAME)"),
		}},
		{"Memory", []family{
			plain("void *", "malloc", "size_t size", "return sma_malloc(NAME, size, 0, 0)"),
			plain("void", "free", "void *ptr", "sma_free(NAME, ptr)"),
			plain("void *", "realloc", "void *ptr, size_t size", "return sma_realloc(NAME, ptr, size)"),
			plain("void *", "align", "size_t alignment, size_t size", "return sma_malloc(NAME, size, alignment, 0)"),
			plain("void *", "malloc_with_hints", "size_t size, long hints", "(void)hints; return sma_malloc(NAME, size, 0, 0)"),
			plain("void *", "calloc", "size_t count, size_t size", "return sma_malloc(NAME, sma_bytes(count, size), 0, 1)"),
			old("void *", "shmalloc", "size_t size", "return sma_malloc(NAME, size, 0, 0)"),
			old("void", "shfree", "void *ptr", "sma_free(NAME, ptr)"),
			old("void *", "shrealloc", "void *ptr, size_t size", "return sma_realloc(NAME, ptr, size)"),
			old("void *", "shmemalign", "size_t alignment, size_t size", "return sma_malloc(NAME, size, alignment, 0)"),
		}},
		{"Teams", []family{
			plain("int", "team_my_pe", "shmem_team_t team", "return smaTeamMyPE(NAME, SMA_ID(team))"),
			plain("int", "team_n_pes", "shmem_team_t team", "return smaTeamNPEs(NAME, SMA_ID(team))"),
			plain("int", "team_get_config", "shmem_team_t team, long config_mask, shmem_team_config_t *config",
				"return sma_team_get_config(NAME, team, config_mask, config)"),
			plain("int", "team_translate_pe", "shmem_team_t src_team, int src_pe, shmem_team_t dest_team",
				"return smaTeamTranslatePE(NAME, SMA_ID(src_team), src_pe, SMA_ID(dest_team))"),
			plain("int", "team_split_strided", "shmem_team_t parent_team, int start, int stride, int size, const shmem_team_config_t *config, long config_mask, shmem_team_t *new_team",
				"return sma_team_split_strided(NAME, parent_team, start, stride, size, config, config_mask, new_team)"),
			plain("int", "team_split_2d", "shmem_team_t parent_team, int xrange, const shmem_team_config_t *xaxis_config, long xaxis_mask, shmem_team_t *xaxis_team, const shmem_team_config_t *yaxis_config, long yaxis_mask, shmem_team_t *yaxis_team",
				"return sma_team_split_2d(NAME, parent_team, xrange, xaxis_config, xaxis_mask, xaxis_team, yaxis_config, yaxis_mask, yaxis_team)"),
			plain("void *", "team_ptr", "shmem_team_t team, const void *dest, int pe",
				"pe = smaTeamTranslatePE(NAME, SMA_ID(team), pe, SMA_ID(SHMEM_TEAM_WORLD)); return pe < 0 ? NULL : sma_ptr(NAME, dest, pe)"),
			plain("void", "team_destroy", "shmem_team_t team", "smaTeamDestroy(NAME, SMA_ID(team))"),
		}},
		{"Contexts", []family{
			plain("int", "ctx_create", "long options, shmem_ctx_t *ctx", "return sma_ctx_create(NAME, SHMEM_TEAM_WORLD, options, ctx)"),
			plain("int", "team_create_ctx", "shmem_team_t team, long options, shmem_ctx_t *ctx", "return sma_ctx_create(NAME, team, options, ctx)"),
			plain("void", "ctx_destroy", "shmem_ctx_t ctx", "sma_ctx_destroy(NAME, ctx)"),
			plain("int", "ctx_get_team", "shmem_ctx_t ctx, shmem_team_t *team", "return sma_ctx_get_team(NAME, ctx, team)"),
			plain("void", "ctx_session_start", "shmem_ctx_t ctx, long options, const shmem_ctx_session_config_t *config, long config_mask",
				"(void)options, (void)config, (void)config_mask, sma_session(NAME, ctx)"),
			plain("void", "ctx_session_stop", "shmem_ctx_t ctx", "sma_session(NAME, ctx)"),
		}},
		{"Remote memory access", rmas},
		{"Atomic memory operations", atomicFamilies()},
		{"Signals", signals},
		{"Collective operations", collectiveFamilies()},
		{"Waits and tests", waitFamilies()},
		{"Memory ordering", []family{
			plain("void", "fence", "void", "sma_fence()"),
			plain("void", "ctx_fence", "shmem_ctx_t ctx", "(void)ctx, sma_fence()"),
			plain("void", "quiet", "void", "sma_quiet(&sma_world, NAME)"),
			plain("void", "ctx_quiet", "shmem_ctx_t ctx", "sma_quiet(sma_context(ctx), NAME)"),
			family{ret: "void", name: "pe_quiet", params: "const int *target_pes, size_t npes", ctx: true, body: "sma_pe_quiet(CTX, NAME, target_pes, npes)"},
		}},
		{"Locks", []family{
			plain("void", "clear_lock", "long *lock", "sma_lock(NAME, SMA_CLEAR, lock)"),
			plain("void", "set_lock", "long *lock", "sma_lock(NAME, SMA_LOCK, lock)"),
			plain("int", "test_lock", "long *lock", "return sma_lock(NAME, SMA_TRY, lock)"),
		}},
	}
}

// functions returns all functions of the table.
func functions() (all []function) {
	for _, c := range chapters() {
		for _, f := range c.families {
			for _, one := range f.functions() {
				one.chapter = c.title
				all = append(all, one)
			}
		}
	}
	return all
}

// functions returns the functions of a row.
func (f family) functions() (all []function) {
	for _, ctx := range []bool{false, true} {
		if ctx && !f.ctx {
			break
		}
		// put_signal becomes put32_signal, for one.
		stem, rest, more := strings.Cut(f.name, "_")
		if more {
			rest = "_" + rest
		}
		switch {
		case f.sizes:
			for _, bits := range []string{"8", "16", "32", "64", "128"} {
				all = append(all, f.function(stem+bits+rest, ctx, ctype{}, bits))
			}
			if f.mem {
				all = append(all, f.function(stem+"mem"+rest, ctx, ctype{}, "8"))
			}
		case len(f.types.types) == 0:
			all = append(all, f.function(f.name, ctx, ctype{}, ""))
		default:
			for _, t := range f.types.types {
				one := f.function(t.name+"_"+f.name, ctx, t, "")
				one.deprecated = one.deprecated || f.types.name == waits.name && (t == tShort || t == tUshort)
				all = append(all, one)
			}
		}
	}
	return all
}

// function returns one function of a row.
func (f family) function(name string, ctx bool, t ctype, bits string) function {
	handle, params := "&sma_world", f.params
	if ctx {
		name, handle, params = "ctx_"+name, "sma_context(ctx)", "shmem_ctx_t ctx, "+params
	}
	whole, odd := strings.CutPrefix(name, "=")
	if !odd {
		whole = "shmem_" + name
	}
	r := strings.NewReplacer("TYPE", t.c, "FOLD", t.fold, "SIZE", bits, "CTX", handle, "NAME", `"`+whole+`"`)
	body := strings.ReplaceAll(r.Replace(f.body), "sma_bytes(nelems, 8 / 8)", "nelems")
	return function{ret: r.Replace(f.ret), name: whole, params: strings.ReplaceAll(params, "TYPE", t.c), body: body, deprecated: f.deprecated}
}
