package run

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"monopod/internal/config"
	"monopod/internal/daemontest"
	"monopod/internal/daemontest/clitest"
	"monopod/internal/program"
	"monopod/internal/trial"
	"monopod/runner/runtimetest"
)

// cluster is `up --api` under way.
type cluster struct {
	*runBench
	report trial.Report
	client *http.Client
	server string
	// end closes its input, and returns how it came out.
	end func() clitest.Result
}

func startCluster(t *testing.T, b *runBench, args ...string) *cluster {
	t.Helper()
	p, _, errs := b.prog()
	in, input := io.Pipe()
	output, out := io.Pipe()
	p.Stdin, p.Stdout = in, out
	done := make(chan int, 1)
	go func() {
		code := commands(t.Context(), p, append([]string{"up", "--config", b.Path("config.yaml"), "--min-ready=0s", "--api", "-o", "json", "--until-eof"}, args...))
		_ = out.Close()
		done <- code
	}()
	c := &cluster{runBench: b}
	read := json.NewDecoder(output)
	if err := read.Decode(&c.report); err != nil {
		t.Fatalf("%v: code %d: %s", err, <-done, errs)
	}
	c.end = func() clitest.Result {
		_ = input.Close()
		_, _ = io.Copy(io.Discard, output)
		return clitest.Printed("", errs.String(), <-done)
	}
	text, err := os.ReadFile(c.report.Run.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	if c.client, err = rest.HTTPClientFor(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.client.CloseIdleConnections)
	c.server = cfg.Host
	return c
}

// ask returns the code and the body of an answer.
func (c *cluster) ask(method, path, body string) (int, string) {
	c.T.Helper()
	r, err := http.NewRequestWithContext(c.T.Context(), method, c.server+path, strings.NewReader(body))
	if err != nil {
		c.T.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/yaml")
	res, err := c.client.Do(r)
	if err != nil {
		c.T.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		c.T.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// runs waits until a pod runs.
func (c *cluster) runs(name string) {
	c.T.Helper()
	var pod corev1.Pod
	for deadline := time.Now().Add(daemontest.Patience); pod.Status.Phase != corev1.PodRunning; time.Sleep(time.Millisecond) {
		code, text := c.ask("GET", "/api/v1/namespaces/default/pods/"+name, "")
		if err := json.Unmarshal([]byte(text), &pod); err != nil || code != http.StatusOK || time.Now().After(deadline) {
			c.T.Fatalf("pod %s does not run: %d %v %s", name, code, err, text)
		}
	}
}

const pods = "/api/v1/namespaces/default/pods"

func TestUpServesAKubernetesAPI(t *testing.T) {
	b := newRunBench(t)
	c := startCluster(t, b)
	if info, err := os.Stat(c.report.Run.Kubeconfig); err != nil || info.Mode().Perm() != 0o600 || c.report.Result != trial.OK || len(c.report.Pods) != 0 {
		t.Errorf("%+v, kubeconfig %v %v", c.report, info, err)
	}
	if code, text := c.ask("GET", "/readyz", ""); code != http.StatusOK {
		t.Errorf("readyz: %d %s", code, text)
	}
	var nodes corev1.NodeList
	if code, text := c.ask("GET", "/api/v1/nodes", ""); json.Unmarshal([]byte(text), &nodes) != nil || len(nodes.Items) != 1 {
		t.Errorf("nodes: %d %s", code, text)
	}
	if code, text := c.ask("POST", pods, daemontest.PodYAML("web", runtimetest.ScriptServe)); code != http.StatusCreated {
		t.Fatalf("a pod: %d %s", code, text)
	}
	c.runs("web")
	if r := c.end(); r.Code != 0 || r.Stderr != "" {
		t.Errorf("%+v", r)
	}
	b.nothingLeft()
}

func TestClustersHavePortsOfTheirOwn(t *testing.T) {
	b := newRunBench(t)
	first := startCluster(t, b, "-f", b.file("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe)))
	second := startCluster(t, b)
	if first.server == second.server || first.report.Run.Kubeconfig == second.report.Run.Kubeconfig {
		t.Errorf("both are at %s, with %s", first.server, first.report.Run.Kubeconfig)
	}
	first.runs("web")
	if code, text := first.ask("DELETE", pods+"/web", ""); code != http.StatusForbidden {
		t.Errorf("a pod of a file: %d %s", code, text)
	}
	if code, text := second.ask("GET", pods+"/web", ""); code != http.StatusNotFound {
		t.Errorf("the pod of another cluster: %d %s", code, text)
	}
	for _, c := range []*cluster{first, second} {
		if r := c.end(); r.Code != 0 {
			t.Errorf("%+v", r)
		}
	}
	b.nothingLeft()
}

func TestTheCommandIsAnAdministratorOfItsCluster(t *testing.T) {
	b := newRunBench(t)
	p, out, errs := b.prog()
	p.Env.Environ = append(p.Env.Environ, "KUBECONFIG=/of/another/cluster")
	code := commands(t.Context(), p, []string{"up", "--config", b.Path("config.yaml"), "--api", "--", "sh", "-c", "echo $KUBECONFIG; grep -c 'server: https://127.0.0.1:' $KUBECONFIG; exit 3"})
	if want := filepath.Join(firstSlot(b).Root, kubeconfigFile) + "\n1\n"; code != 3 || out.String() != want || errs.String() != "" {
		t.Errorf("code %d: %s%s, want %s", code, out, errs, want)
	}
	if r := b.do("up", "--", "true"); r.Code != program.ExitNotRun || !strings.Contains(r.Stderr, "no manifests") {
		t.Errorf("without an API: %+v", r)
	}
	b.nothingLeft()
}

// TestGracePeriodsOfAClusterAreShortened: a removal does not wait an hour for a pod that ignores its signal.
func TestGracePeriodsOfAClusterAreShortened(t *testing.T) {
	b := newRunBench(t)
	c := startCluster(t, b, "--grace=0s")
	for name, seconds := range map[string]string{"long": "3600", "short": "0"} {
		pod := daemontest.PodYAML(name, runtimetest.ScriptStubborn) + "  terminationGracePeriodSeconds: " + seconds + "\n"
		if code, text := c.ask("POST", pods, pod); code != http.StatusCreated {
			t.Fatalf("%d %s", code, text)
		}
		c.runs(name)
	}
	if r := c.end(); r.Code != 0 {
		t.Errorf("%+v", r)
	}
	b.nothingLeft()
}

func TestARunHasNotTheAPIOfTheDaemon(t *testing.T) {
	b := newRunBench(t)
	s := firstSlot(b)
	s.base.Sources = map[string]string{}
	s.base.APIServer = config.APIServer{Address: "127.0.0.1:6443", MaxConnections: 7, TokenFile: "/tokens", Anonymous: true, Names: []string{"a"}, Rules: map[string][]string{"user:a": {"view"}}, InertKinds: []string{"Role"}}
	if got := s.Config("10.84.0.0/24").APIServer; fmt.Sprint(got) != fmt.Sprint(config.APIServer{MaxConnections: 7, InertKinds: []string{"Role"}}) {
		t.Errorf("%+v", got)
	}
}
