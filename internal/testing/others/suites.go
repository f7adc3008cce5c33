package main

// suite is what one run compares.
type suite struct {
	name     string
	target   string   // "std", a module with version, or a directory; below that of this command if own
	packages []string // patterns
	own      bool
	only     string // as go test -run takes it; "" for all tests
	interop  bool   // gRPC's interop client and server rather than tests
}

// suites are the suites that are known by name. Their versions are fixed, so that
// known.go stays true.
var suites = []suite{
	{name: "ssh", target: "golang.org/x/crypto@v0.58.0", packages: []string{"./ssh/..."}},
	{name: "fasthttp", target: "github.com/valyala/fasthttp@v1.73.0", packages: []string{"./..."}},
	{name: "tls", target: std, packages: []string{"crypto/tls"}},
	{name: "http", target: std, packages: []string{"net/http/..."}},
	{name: "smtp", target: "github.com/emersion/go-smtp@v0.24.0", packages: []string{"./..."}},
	{name: "socks5", target: "github.com/armon/go-socks5@v0.0.0-20160902184237-e75332964ef5", packages: []string{"./..."}},
	{name: "websocket", target: "github.com/coder/websocket@v1.8.14", packages: []string{"./..."}},
	{name: "grpc", target: grpc, packages: []string{".", "./test", "./internal/transport"}},
	{name: "interop", target: grpc, interop: true},
	{name: "redis", target: drivers, own: true, packages: []string{"."}, only: "^TestRedis"},
	{name: "mysql", target: drivers, own: true, packages: []string{"."}, only: "^TestMariaDB"},
}

const (
	std  = "std"
	grpc = "google.golang.org/grpc@v1.85.0"

	// go-redis v9.23.0 with redis-server, and go-sql-driver/mysql v1.10.1 with MariaDB.
	drivers = "testdata/drivers"
)
