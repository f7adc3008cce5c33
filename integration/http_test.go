//go:build linux

package integration

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/rpc"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

// serverReport is what a server reports about itself.
type serverReport struct {
	Networks map[string]int // number of connections by transport
	Stats    sdp.FabricStats
}

// written returns the payload that a process has written. Counters may lag behind
// for as long as a Read or Write is under way.
func written(s sdp.FabricStats) uint64 { return s.BytesWritten() }

// networks counts connections by transport.
type networks struct {
	mu    sync.Mutex
	count map[string]int // guarded by mu
}

func (n *networks) add(c net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.count == nil {
		n.count = map[string]int{}
	}
	n.count[transportOf(c)]++
}

// transportOf returns "sdp", or else the network of a connection's addresses.
func transportOf(c net.Conn) string {
	if _, ok := c.(*sdp.Conn); ok {
		return "sdp"
	}
	return c.RemoteAddr().Network()
}

// report answers the test until the test is done with this process.
func (n *networks) report(p *self) error {
	for {
		if _, ok := p.readLine(); !ok {
			return nil
		}
		n.mu.Lock()
		b, err := json.Marshal(serverReport{n.count, sdp.DefaultStats()})
		n.mu.Unlock()
		if err != nil {
			return err
		}
		p.printf("%s", b)
	}
}

// payloadHandler sends a stream of any length, and returns the sum of what is put.
func payloadHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /stream", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.ParseInt(r.FormValue("n"), 10, 64)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
		io.Copy(w, io.LimitReader(newStream(1), n))
	})
	mux.HandleFunc("PUT /sum", func(w http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		n, err := io.Copy(h, r.Body)
		fmt.Fprintf(w, "%d %x %v", n, h.Sum(nil), err)
	})
	return mux
}

// playHTTP serves HTTP/1.1, or HTTP/2 over TLS, with package net/http.
func playHTTP(p *self) error {
	ln, err := sdp.Listen("sdp", "localhost:0")
	if err != nil {
		return err
	}
	var seen networks
	srv := &http.Server{Handler: payloadHandler(), ConnContext: func(ctx context.Context, c net.Conn) context.Context {
		seen.add(c)
		return ctx
	}}
	served := make(chan error, 1)
	if p.args[0] == "HTTP/1.1" {
		p.printf("%s", ln.Addr())
		go func() { served <- srv.Serve(ln) }()
	} else {
		cert, err := selfSigned()
		if err != nil {
			return err
		}
		srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
		p.printf("%s %s", ln.Addr(), base64.StdEncoding.EncodeToString(cert.Certificate[0]))
		go func() { served <- srv.ServeTLS(ln, "", "") }()
	}
	if err := seen.report(p); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil {
		return err
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		DNSNames:     []string{"localhost"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

func TestHTTP(t *testing.T) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) { testHTTP(t, proto) })
	}
}

func testHTTP(t *testing.T, proto string) {
	newFabric(t)
	server := startPeer(t, "http", []string{proto})
	hello := words(server.readLine())
	transport := &http.Transport{DialContext: sdp.DialContext}
	defer transport.CloseIdleConnections()
	url := "http://" + hello[0]
	if len(hello) > 1 {
		url = "https://" + hello[0]
		der, err := base64.StdEncoding.DecodeString(hello[1])
		require.NoError(t, err)
		cert, err := x509.ParseCertificate(der)
		require.NoError(t, err)
		roots := x509.NewCertPool()
		roots.AddCert(cert)
		transport.TLSClientConfig = &tls.Config{RootCAs: roots}
		transport.ForceAttemptHTTP2 = true
	}
	client := &http.Client{Transport: transport}

	conns := 0
	request := func(method, path string, body io.Reader, length int64) *http.Response {
		t.Helper()
		trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
			conns++
			require.NoError(t, wantSDP(i.Conn))
		}}
		req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), method, url+path, body)
		require.NoError(t, err)
		req.ContentLength = length
		resp, err := client.Do(req)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Equal(t, proto, resp.Proto)
		return resp
	}

	size := long(1<<30, 32<<20)
	want := sha256.New()
	_, err := io.CopyN(want, newStream(1), size)
	require.NoError(t, err)
	sum := fmt.Sprintf("%x", want.Sum(nil))

	resp := request("PUT", "/sum", io.LimitReader(newStream(1), size), size)
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, fmt.Sprintf("%d %s <nil>", size, sum), string(answer))
	var there serverReport
	covers := func(upload, download int64) {
		t.Helper()
		until(t, "the statistics cover the payload", func() bool {
			here := sdp.DefaultStats()
			server.askFor("report", &there)
			return written(here) >= uint64(upload) && there.Stats.BytesRead >= uint64(upload) &&
				here.BytesRead >= uint64(download) && written(there.Stats) >= uint64(download)
		})
	}
	covers(size, 0)
	require.Less(t, written(there.Stats), uint64(size), "this cannot be told from the download")

	got := sha256.New()
	resp = request("GET", fmt.Sprintf("/stream?n=%d", size), nil, 0)
	n, err := io.Copy(got, resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, size, n)
	require.Equal(t, sum, fmt.Sprintf("%x", got.Sum(nil)))
	covers(size, size)

	require.Equal(t, 2, conns)
	require.Len(t, there.Networks, 1)
	require.Positive(t, there.Networks["sdp"])
	transport.CloseIdleConnections()
	server.end()
}

// Reverse is the service of playRPC.
type Reverse struct{}

// Bytes reverses arg.
func (Reverse) Bytes(arg []byte, reply *[]byte) error {
	*reply = make([]byte, len(arg))
	for i, b := range arg {
		(*reply)[len(arg)-1-i] = b
	}
	return nil
}

// playRPC serves calls with package net/rpc.
func playRPC(p *self) error {
	ln, err := sdp.Listen("sdp", "localhost:0")
	if err != nil {
		return err
	}
	srv := rpc.NewServer()
	if err := srv.Register(Reverse{}); err != nil {
		return err
	}
	var seen networks
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			seen.add(c)
			wg.Go(func() { srv.ServeConn(c) })
		}
	})
	p.printf("%s", ln.Addr())
	err = seen.report(p)
	ln.Close()
	wg.Wait()
	return err
}

func TestRPC(t *testing.T) {
	newFabric(t)
	server := startPeer(t, "rpc", nil)
	conn, err := sdp.Dial("sdp", server.readLine())
	require.NoError(t, err)
	require.NoError(t, wantSDP(conn))
	client := rpc.NewClient(conn)
	defer client.Close()

	const workers, calls = 8, 200
	payload := 0
	for i := range calls {
		payload += callSize(i)
	}
	payload *= workers
	errs := make(chan error, workers)
	for w := range workers {
		go func() {
			for i := range calls {
				arg := newStream(w*calls + i).next(callSize(i))
				var reply, again []byte
				err := client.Call("Reverse.Bytes", arg, &reply)
				if err == nil {
					Reverse{}.Bytes(reply, &again)
					if string(again) != string(arg) {
						err = errWrongBytes
					}
				}
				if err != nil {
					errs <- fmt.Errorf("call %d of worker %d: %w", i, w, err)
					return
				}
			}
			errs <- nil
		}()
	}
	for range workers {
		require.NoError(t, <-errs)
	}
	var there serverReport
	until(t, "the statistics cover the payload", func() bool {
		here := sdp.DefaultStats()
		server.askFor("report", &there)
		return min(here.BytesRead, written(here), there.Stats.BytesRead, written(there.Stats)) >= uint64(payload)
	})
	require.Equal(t, map[string]int{"sdp": 1}, there.Networks)
	require.NoError(t, client.Close())
	server.end()
}

// callSize returns a size from 1 byte to 64 KiB.
func callSize(i int) int { return 1 << (i % 17) }
