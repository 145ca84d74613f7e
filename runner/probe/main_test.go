package probe

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// envServer makes the test program the server of benchmarks, so that the CPU time of the server is not measured.
const envServer = "PROBE_TEST_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(envServer) != "" {
		serve()
		return
	}
	goleak.VerifyTestMain(m)
}

// serve prints the ports of an HTTP and a gRPC server and serves until its input ends.
func serve() {
	web, err1 := net.Listen("tcp", "127.0.0.1:0")
	rpc, err2 := net.Listen("tcp", "127.0.0.1:0")
	if err1 != nil || err2 != nil {
		fmt.Fprintln(os.Stderr, err1, err2)
		os.Exit(1)
	}
	s := grpc.NewServer()
	healthpb.RegisterHealthServer(s, health.NewServer())
	go func() { _ = http.Serve(web, http.HandlerFunc(site)) }() //nolint:gosec // ends with the process
	go func() { _ = s.Serve(rpc) }()
	fmt.Println(web.Addr().(*net.TCPAddr).Port, rpc.Addr().(*net.TCPAddr).Port)
	_, _ = os.Stdin.Read(make([]byte, 1))
}
