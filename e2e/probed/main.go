// Command probed is a server for tests of probes, to be run in a container. It listens on any number of ports, and is healthy while the
// file named by its first argument contains "ok"; with "-", it is always healthy:
//
//	probed FILE serve [KIND:PORT...]   serves until SIGTERM; kinds are http, https, tcp, grpc; with STUBBORN set, it ignores SIGTERM
//	probed FILE                        exits with 0 or 1
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

func main() {
	file := os.Args[1]
	if len(os.Args) == 2 {
		if !well(file) {
			fmt.Println("not well")
			os.Exit(1)
		}
		return
	}
	stop := make(chan os.Signal, 1)
	if os.Getenv("STUBBORN") == "" {
		signal.Notify(stop, syscall.SIGTERM)
	} else {
		signal.Ignore(syscall.SIGTERM)
	}
	for _, server := range os.Args[3:] {
		kind, port, _ := strings.Cut(server, ":")
		go serve(file, kind, port)
	}
	<-stop
}

// serve answers on one port.
func serve(file, kind, port string) {
	web := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/http2" && r.ProtoMajor != 2 {
			http.Error(w, "by HTTP/2 only", http.StatusHTTPVersionNotSupported)
		}
		if !well(file) {
			http.Error(w, "not well", http.StatusServiceUnavailable)
		}
		fmt.Println(r.Method, r.URL.Path, r.UserAgent())
	})
	switch kind {
	case "http":
		plain := &http.Server{Handler: web, Protocols: new(http.Protocols)} //nolint:gosec // for tests
		plain.Protocols.SetHTTP1(true)
		plain.Protocols.SetUnencryptedHTTP2(true)
		fail(plain.Serve(listen(port)))
	case "https":
		fail(http.Serve(tls.NewListener(listen(port), selfSigned()), web)) //nolint:gosec // for tests
	case "tcp":
		tcp(file, port)
	case "grpc":
		rpc := grpc.NewServer()
		healthpb.RegisterHealthServer(rpc, health{file: file})
		fail(rpc.Serve(listen(port)))
	default:
		fail(fmt.Errorf("unknown kind of server %q", kind))
	}
}

func well(file string) bool {
	if file == "-" {
		return true
	}
	b, _ := os.ReadFile(file)
	return strings.TrimSpace(string(b)) == "ok"
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}

func listen(port string) net.Listener {
	l, err := net.Listen("tcp", ":"+port)
	if err != nil {
		fail(err)
	}
	return l
}

// tcp listens while the server is healthy.
func tcp(file, port string) {
	var open net.Listener
	for ; ; time.Sleep(20 * time.Millisecond) {
		switch is := well(file); {
		case is && open == nil:
			open = listen(port)
		case !is && open != nil:
			_ = open.Close()
			open = nil
		}
	}
}

// selfSigned returns a self-signed certificate without addresses.
func selfSigned() *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		fail(err)
	}
	t := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		fail(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}
}

type health struct {
	healthpb.UnimplementedHealthServer
	file string
}

// Check implements the health service.
func (h health) Check(context.Context, *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if well(h.file) {
		return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
	}
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING}, nil
}
