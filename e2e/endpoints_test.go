//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// busy is a pod that uses CPU, holds 8 MiB of memory, has written 2 MiB into a volume, 1 MiB into its writable layer and 64 KiB into its
// log, and has sent packets.
func busy() string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: busy}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: %s
    resources: {limits: {cpu: 400m, memory: 64Mi}}
    command: [sh, -c, "f() { dd if=/dev/zero of=$1 bs=64k count=$2 2>/dev/null; }; f /v/f 32; f /layer 16;
      head -c 64k /dev/zero | tr '\\0' y | fold -w 99; ping -c 1 -w 5 $(ip route | awk '/default/{print $3}'); echo; echo done; touch /ready; exec dd if=/dev/zero of=/dev/null bs=8M"]
    readinessProbe: {exec: {command: [test, -e, /ready]}, periodSeconds: 1, timeoutSeconds: 5}
    volumeMounts: [{name: v, mountPath: /v}, {name: words, mountPath: /words}]
  volumes: [{name: v, emptyDir: {}}, {name: words, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}]
`, image)
}

// curl sends a request to the socket.
func (in *instance) curl(path string) string {
	in.t.Helper()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(in.state, "monopod.sock"))
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	r, err := client.Get("http://monopod" + path)
	if err != nil {
		in.t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	out, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		in.t.Fatalf("%s: %v %s %s", path, err, r.Status, out)
	}
	return string(out)
}

// TestEndpointsReportUsage compares the reported usage with what the kernel reports for the processes, and runs the examples of the docs
// for TCP, with certificates.
func TestEndpointsReportUsage(t *testing.T) {
	t.Parallel()
	host := "127.95." + strconv.Itoa(os.Getpid()/250%250) + "." + strconv.Itoa(1+os.Getpid()%250)
	in := newInstance(t, "address: "+host, "port: 10250", "readOnlyPort: 10255", "healthzPort: 10248", "healthzBindAddress: "+host,
		"authentication: {tokenFile: tokens, x509: {clientCAFile: clients.crt}}",
		`authorization: {mode: Rules, rules: {"user:prometheus": [metrics, stats], "group:operators": ["*"]}}`)
	in.write(filepath.Join(in.dir, "tokens"), "0123456789abcdef,prometheus\n")
	operator(t, in.dir)
	in.start()
	in.put("busy", busy())
	p := in.ready("busy")
	id := strings.TrimPrefix(containerID(p, "c"), "containerd://")
	pid := in.processOf(id)
	t.Run("values", func(t *testing.T) { in.valuesAreThoseOfTheKernel(t, pid) })
	t.Run("metrics", func(t *testing.T) {
		text := in.curl("/metrics/cadvisor")
		for _, want := range []string{
			`container_spec_memory_limit_bytes{container="c",id="` + in.cgroups.Container(podCgroup(in, p), id) + `",image="`, `container_network_transmit_packets_total{container="",id="` + podCgroup(in, p) + `"`,
			`container_cpu_cfs_throttled_periods_total{container="c"`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("no %s in\n%s", want, text)
			}
		}
		if cgroupV2() && !strings.Contains(text, `container_pressure_cpu_waiting_seconds_total{container="c"`) {
			t.Errorf("no pressure in\n%s", text)
		}
		for path, want := range map[string]string{
			"/metrics": `kubelet_started_containers_total{container_type="container"} 1`, "/metrics/probes": `probe_type="Readiness",result="successful"`,
			"/metrics/resource": `container_memory_working_set_bytes{container="c",namespace="default",pod="busy"}`,
		} {
			if text := in.curl(path); !strings.Contains(text, want) {
				t.Errorf("%s has no %s:\n%s", path, want, text)
			}
		}
	})
	if _, err := exec.LookPath("curl"); err == nil { // the small VM has none
		t.Run("docs", func(t *testing.T) { in.docsOverTCP(t, host) })
	}
	t.Run("kubectl", func(t *testing.T) { in.kubectlOverTCP(t, host) })
	t.Run("logs and commands", func(t *testing.T) { in.asKubeletsClients(t, host, id) })
	in.drop("busy")
	in.gone("busy")
}

// processOf returns the first process of a container.
func (in *instance) processOf(id string) int {
	in.t.Helper()
	for pid := range in.table() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err == nil && strings.Contains(string(b), id) && !strings.Contains(procText(pid, "cmdline"), "runc") {
			return pid
		}
	}
	in.t.Fatalf("no process of %s", id)
	return 0
}

func procText(pid int, name string) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	return string(b)
}

func (in *instance) summary(t *testing.T) (statsapi.Summary, statsapi.PodStats) {
	t.Helper()
	var s statsapi.Summary
	if err := json.Unmarshal([]byte(in.curl("/stats/summary")), &s); err != nil {
		t.Fatal(err)
	}
	if len(s.Pods) != 1 || len(s.Pods[0].Containers) != 1 || s.Pods[0].PodRef.Name != "busy" {
		t.Fatalf("%+v", s)
	}
	return s, s.Pods[0]
}

func (in *instance) valuesAreThoseOfTheKernel(t *testing.T, pid int) {
	const mi = 1 << 20
	cpuBefore, txBefore := cpuOf(t, pid), transmitted(t, pid)
	s, p := in.summary(t)
	cpuAfter, txAfter := cpuOf(t, pid), transmitted(t, pid)
	c := p.Containers[0]
	// The usage of its exited children counts, too: some tenths of a second.
	if got := time.Duration(*c.CPU.UsageCoreNanoSeconds); got < cpuBefore-50*time.Millisecond || got > cpuAfter+5*time.Second {
		t.Errorf("processor time %s, the process has %s to %s", got, cpuBefore, cpuAfter)
	}
	if c.CPU.UsageNanoCores == nil || *c.CPU.UsageNanoCores == 0 || *c.CPU.UsageNanoCores > 900_000_000 {
		t.Errorf("rate %v of a container with a limit of 400m", c.CPU.UsageNanoCores)
	}
	in.eventually("the process has used more", func() error {
		if now := cpuOf(t, pid); now < cpuAfter+50*time.Millisecond {
			return fmt.Errorf("%s, before it was %s", now, cpuAfter)
		}
		return nil
	})
	used := cpuOf(t, pid)
	_, later := in.summary(t)
	if got := time.Duration(*later.Containers[0].CPU.UsageCoreNanoSeconds - *c.CPU.UsageCoreNanoSeconds); got < used-cpuAfter-50*time.Millisecond {
		t.Errorf("between two requests it used %s, the process alone %s", got, used-cpuAfter)
	}
	anon := status(t, pid, "RssAnon")
	if rss := *c.Memory.RSSBytes; rss < anon-mi || rss > anon+16*mi || *c.Memory.WorkingSetBytes < anon-mi || *c.Memory.AvailableBytes > 64*mi-*c.Memory.WorkingSetBytes {
		t.Errorf("rss %d, working set %d, available %d; the process has %d", rss, *c.Memory.WorkingSetBytes, *c.Memory.AvailableBytes, anon)
	}
	near := func(what string, got *uint64, want uint64) {
		t.Helper()
		if got == nil || *got < want || *got > want+mi/2 {
			t.Errorf("%s: %v, want %d", what, got, want)
		}
	}
	near("volume", p.VolumeStats[0].UsedBytes, 2*mi)
	if words := p.VolumeStats[1]; words.Name != "words" || *words.UsedBytes == 0 || *words.UsedBytes > 64<<10 || *words.InodesUsed < 3 {
		t.Errorf("the volume of the downward API: %+v", words)
	}
	near("layer", c.Rootfs.UsedBytes, mi)
	near("logs", c.Logs.UsedBytes, 64<<10)
	near("all", p.EphemeralStorage.UsedBytes, 3*mi+64<<10)
	if got := *p.Network.TxBytes; got < txBefore || got > txAfter || got == 0 {
		t.Errorf("it sent %d bytes, its interface %d to %d", got, txBefore, txAfter)
	}
	in.eventually("there is one process, when no probe runs", func() error {
		if _, p := in.summary(t); *p.ProcessStats.ProcessCount != 1 {
			return fmt.Errorf("%d processes", *p.ProcessStats.ProcessCount)
		}
		return nil
	})
	for _, sys := range s.Node.SystemContainers {
		if sys.Name == statsapi.SystemContainerKubelet {
			if got, want := *sys.Memory.UsageBytes, status(t, in.cmd.Process.Pid, "VmRSS"); got+8*mi < want || got > want+8*mi {
				t.Errorf("monopod uses %d, and has %d", got, want)
			}
		}
	}
	if cgroupV2() && (c.CPU.PSI == nil || p.Memory.PSI == nil || s.Node.CPU.PSI == nil || c.CPU.PSI.Some.Total == 0) {
		t.Errorf("pressure of a container that is throttled: %+v", c.CPU.PSI)
	}
}

// cpuOf returns the CPU time of one process.
func cpuOf(t *testing.T, pid int) time.Duration {
	t.Helper()
	text := procText(pid, "stat")
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(f) < 13 {
		t.Fatalf("process %d: %q", pid, text)
	}
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

func transmitted(t *testing.T, pid int) uint64 {
	t.Helper()
	for line := range strings.Lines(procText(pid, "net/dev")) {
		if name, rest, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "eth0" {
			n, err := strconv.ParseUint(strings.Fields(rest)[8], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no eth0 in %s", procText(pid, "net/dev"))
	return 0
}

// status returns a line of /proc/PID/status in bytes.
func status(t *testing.T, pid int, key string) uint64 {
	t.Helper()
	for line := range strings.Lines(procText(pid, "status")) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == key+":" {
			n, err := strconv.ParseUint(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatalf("process %d has no %s", pid, key)
	return 0
}

// operator creates a CA for clients and a certificate for a member of group operators.
func operator(t *testing.T, dir string) {
	t.Helper()
	template := func(name string, ca bool) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name, Organization: []string{"operators"}}, IsCA: ca, BasicConstraintsValid: true,
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		}
	}
	client := template("op", false)
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	authority, err1 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	key, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	ca, err1 := x509.CreateCertificate(rand.Reader, template("clients", true), template("clients", true), &authority.PublicKey, authority)
	cert, err2 := x509.CreateCertificate(rand.Reader, client, template("clients", true), &key.PublicKey, authority)
	private, err3 := x509.MarshalPKCS8PrivateKey(key)
	if err1 != nil || err2 != nil || err3 != nil {
		t.Fatal(err1, err2, err3)
	}
	for name, block := range map[string]*pem.Block{
		"clients.crt": {Type: "CERTIFICATE", Bytes: ca}, "operator.crt": {Type: "CERTIFICATE", Bytes: cert}, "operator.key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// asKubeletsClients sends the requests of kubelet clients over TCP: logs with all options, and exec. Then it kills the container.
func (in *instance) asKubeletsClients(t *testing.T, host, id string) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(in.dir, "operator.crt"), filepath.Join(in.dir, "operator.key"))
	if err != nil {
		t.Fatal(err)
	}
	conf := &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true} // whose certificate that is the docs say
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true}}
	ask := func(method, path string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "https://"+host+":10250"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.Body.Close() }()
		out, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%d %s", r.StatusCode, out)
	}
	const stamp = `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(Z|[+-]\d\d:\d\d) `
	row := strings.Repeat("y", 99) + "\n"
	check := func(method, path, want string) {
		t.Helper()
		if got := ask(method, path); !regexp.MustCompile("^(?s:" + want + ")$").MatchString(got) {
			t.Errorf("%s %s: %.300q, want %q", method, path, got, want)
		}
	}
	const logs = "/containerLogs/default/busy/c"
	soon, past := url.QueryEscape(time.Now().Add(time.Hour).Format(time.RFC3339)), url.QueryEscape(time.Now().Add(-time.Hour).Format(time.RFC3339))
	check("GET", logs, "200 ("+row+")+.*done\n")
	check("GET", logs+"?tailLines=1", "200 done\n")
	check("GET", logs+"?tail=1&timestamps=true", "200 "+stamp+"done\n")
	check("GET", logs+"?tailLines=0", "200 ")
	check("GET", logs+"?limitBytes=150", "200 "+row+strings.Repeat("y", 50))
	check("GET", logs+"?sinceTime="+soon, "200 ")
	check("GET", logs+"?sinceTime="+past+"&limitBytes=3", "200 yyy")
	check("GET", logs+"?sinceSeconds=86400&tail=1", "200 done\n")
	check("GET", logs+"?previous=true", `400 previous terminated container "c" in pod "busy" not found\n`)
	check("GET", logs+"?sinceSeconds=1&sinceTime="+past, "422 Invalid request: .*")
	check("GET", "/containerLogs/default/busy/x", `404 container "x" not found in pod "busy"\n`)
	check("POST", "/run/default/busy/c?cmd=echo+said+it", "200 said it\n")
	check("POST", "/run/default/busy/c?cmd=false", "500 .*exit status 1.*")
	check("GET", "/runningpods/", `200 .*"name":"busy".*`)
	check("GET", "/configz", `200 .*"kubeletconfig":\{.*"readOnlyPort":10255.*`)
	if strings.Contains(ask("GET", "/configz"), "0123456789abcdef") {
		t.Error("a token is in /configz")
	}
	if err := syscall.Kill(in.processOf(id), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	in.pod("busy", "runs again", func(p corev1.Pod) bool { return isReady(p) && containerID(p, "c") != "containerd://"+id })
	check("GET", logs+"?previous=true&tail=1", "200 done\n")
	check("GET", logs+"?tail=1", "200 done\n")
}

// docsOverTCP runs the examples of docs/endpoints.md that need a port.
func (in *instance) docsOverTCP(t *testing.T, host string) {
	f, err := os.Open("../docs/endpoints.md")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	here := strings.NewReplacer("/var/lib/monopod", filepath.Join(in.dir, "root"), "https://localhost:10250", "--connect-to localhost:10250:"+host+":10250 https://localhost:10250", "http://127.0.0.1:", "http://"+host+":")
	n, inside := 0, false
	for sc := bufio.NewScanner(f); sc.Scan(); {
		line := sc.Text()
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```sh"
		case inside:
			n++
			c := exec.Command("bash", "-c", here.Replace(line))
			c.Dir, c.Env = in.dir, append(os.Environ(), "TOKEN=0123456789abcdef")
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", line, err, out)
			}
			stranger := exec.Command("bash", "-c", here.Replace(line))
			stranger.Dir, stranger.Env = in.dir, append(os.Environ(), "TOKEN=wrong")
			if out, err := stranger.CombinedOutput(); strings.Contains(line, "TOKEN") && (err == nil || !strings.Contains(string(out), "401")) {
				t.Errorf("%s with a wrong token: %v\n%s", line, err, out)
			}
		}
	}
	if n != 5 {
		t.Errorf("%d examples", n)
	}
}
