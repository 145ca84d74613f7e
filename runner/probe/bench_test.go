package probe

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// server starts another process that answers probes.
func server(b *testing.B) (web, rpc int) {
	b.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envServer+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	if _, err := fmt.Fscan(out, &web, &rpc); err != nil {
		b.Fatal(err)
	}
	return web, rpc
}

// cpu returns the CPU time of this process.
func cpu() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkAttempt measures one attempt of each handler. cpu-us/op is its CPU time in this process, including the kernel's; 100 is a tenth
// of a core at a thousand attempts per second.
func BenchmarkAttempt(b *testing.B) {
	web, rpc := server(b)
	for _, bb := range []struct {
		name string
		h    corev1.ProbeHandler
	}{
		{"http", httpGet(web, "/ok")},
		{"tcp", corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(web)}}},
		{"grpc", grpcProbe(rpc, "")},
	} {
		b.Run(bb.name, func(b *testing.B) {
			h := newHandler(bb.h, Target{Container: &corev1.Container{}, Host: func() string { return "" }})
			b.ReportAllocs()
			began := cpu()
			for b.Loop() {
				if o := attempt(b.Context(), h, time.Second); o.Result != Success {
					b.Fatal(o)
				}
			}
			b.ReportMetric(float64((cpu()-began).Microseconds())/float64(b.N), "cpu-us/op")
		})
	}
}

// BenchmarkAThousandASecond runs a thousand probes with a period of one second; cores is their CPU usage.
func BenchmarkAThousandASecond(b *testing.B) {
	web, rpc := server(b)
	for _, bb := range []struct {
		name string
		h    corev1.ProbeHandler
	}{
		{"http", httpGet(web, "/ok")},
		{"tcp", corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(web)}}},
		{"grpc", grpcProbe(rpc, "")},
	} {
		b.Run(bb.name, func(b *testing.B) { aThousandASecond(b, bb.h) })
	}
}

func aThousandASecond(b *testing.B, h corev1.ProbeHandler) {
	b.Helper()
	const probes, period = 1000, time.Second
	c := &corev1.Container{LivenessProbe: &corev1.Probe{ProbeHandler: h, PeriodSeconds: int32(period / time.Second)}}
	var group sync.WaitGroup
	var watches []*Watch
	for range probes {
		watches = append(watches, Start(b.Context(), Options{
			Target:    Target{Container: c, Host: func() string { return "" }},
			StartedAt: time.Now().Add(-time.Minute), Known: &Known{Started: true, Ready: true},
			Changed: func() {}, Group: &group,
			Report: func(_ Kind, o Outcome) { b.Errorf("%+v", o) },
		}))
	}
	<-time.After(2 * period) // all have been tried once
	began, start := cpu(), time.Now()
	for b.Loop() {
		<-time.After(period)
	}
	b.ReportMetric((cpu()-began).Seconds()/time.Since(start).Seconds(), "cores")
	for _, w := range watches {
		w.Stop()
	}
	group.Wait()
}
