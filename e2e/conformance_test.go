//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/node/apiserver/apitest"
)

// suiteLabel marks the specs of Kubernetes' end-to-end suite that a node has to pass.
const suiteLabel = "[NodeConformance]"

// suiteSpecs is their number in the pinned release.
const suiteSpecs = 389

// suiteLanes is the number of concurrent specs, in addition to those that wait for minutes. Most specs wait, too.
const suiteLanes = 6

// watches matches specs that watch a container for four minutes.
var watches = regexp.MustCompile(`\*not\* be restarted|increasing restart count`)

// slowLabel marks specs that wait for minutes, one of them for half an hour.
const slowLabel = "[Slow]"

// many matches specs with slowLabel that take less than a minute, and are too many to run at the same time.
var many = regexp.MustCompile(`InPlace Resize|RestartAllContainers`)

// TestConformance runs Kubernetes' own specs for nodes against an instance that is the node of a real control plane. MONOPOD_CONFORMANCE
// selects the specs: all, K/N for a fixed share of those that are not slow, or a regular expression. `make conformance` builds the required
// programs.
func TestConformance(t *testing.T) { conforms(t, "testdata/conformance.txt", (*suite).join) }

// TestConformanceAlone runs the same specs against monopod's own API, without a control plane.
func TestConformanceAlone(t *testing.T) {
	conforms(t, "testdata/conformance-alone.txt", (*suite).serve)
}

// conforms runs the specs that MONOPOD_CONFORMANCE selects. known is the file with those that are known to fail.
func conforms(t *testing.T, known string, prepare func(*suite)) {
	t.Helper()
	which := os.Getenv("MONOPOD_CONFORMANCE")
	if which == "" {
		t.Skip("only with MONOPOD_CONFORMANCE: it needs the suite, see `make conformance`")
	}
	s := newSuite(t)
	s.known, s.results = known, "results.tsv"
	if strings.Contains(known, "alone") {
		s.results = "results-alone.tsv"
	}
	all := s.list()
	if len(all) != suiteSpecs {
		t.Errorf("there are %d specs, not %d", len(all), suiteSpecs)
	}
	chosen := chooseSpecs(t, which, all)
	prepare(s)
	began := time.Now()
	results := s.runAll(chosen)
	s.report(chosen, results, time.Since(began))
}

// suite is the suite and its environment.
type suite struct {
	t      *testing.T
	dir    string
	server *apitest.Server
	in     *instance
	admin  string
	// kubectl is the program, known the file with the specs that are known to fail.
	kubectl, known string
	// results is the name of the file with the results.
	results string
}

// newSuite finds what `make conformance` has built.
func newSuite(t *testing.T) *suite {
	t.Helper()
	dir, err := filepath.Abs("../.cache/conformance")
	if err != nil {
		t.Fatal(err)
	}
	return &suite{t: t, dir: dir, kubectl: filepath.Join(apitest.Programs(t), "kubectl")}
}

// list returns the names of the specs for nodes, sorted.
func (s *suite) list() []string {
	s.t.Helper()
	out, err := exec.Command(filepath.Join(s.dir, "e2e.test"), "--list-tests").Output()
	if err != nil {
		s.t.Fatalf("%v; is it built? `make conformance`", err)
	}
	place := regexp.MustCompile(`^\s*\S+\.go:\d+: (.*)$`)
	var all []string
	for line := range strings.Lines(string(out)) {
		if m := place.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil && strings.Contains(m[1], suiteLabel) {
			all = append(all, m[1])
		}
	}
	slices.Sort(all)
	return all
}

// chooseSpecs returns the selected specs.
func chooseSpecs(t *testing.T, which string, all []string) []string {
	t.Helper()
	if which == "all" {
		return all
	}
	if m := regexp.MustCompile(`^(\d{1,3})/(\d{1,3})$`).FindStringSubmatch(which); m != nil {
		k, _ := strconv.Atoi(m[1]) // up to three digits
		n, _ := strconv.Atoi(m[2])
		if k < 1 || k > n {
			t.Fatalf("%s is no share", which)
		}
		return slices.DeleteFunc(slices.Clone(all), func(name string) bool {
			h := fnv.New32a()
			_, _ = h.Write([]byte(name)) // never fails
			return n > 1 && strings.Contains(name, slowLabel) || h.Sum32()%uint32(n) != uint32(k-1)
		})
	}
	pattern, err := regexp.Compile(which)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return !pattern.MatchString(name) })
}

// serve runs a node that serves the API itself, and pulls all images from a local registry.
func (s *suite) serve() {
	t := s.t
	t.Helper()
	hosts := filepath.Join(t.TempDir(), "certs.d")
	suiteImages(t, s.dir, hosts)
	s.in = newInstance(t, fmt.Sprintf("apiServer: {address: '127.0.0.1:%d', maxConnections: 2000}", freePort(t)),
		"registryHostsDirs: ["+hosts+"]", "registryPullQPS: 0", "maxParallelImagePulls: 4", manyProcessors)
	s.in.start()
	k := s.in.client("admin")
	s.admin = k.kubeconfig
	t.Cleanup(func() { // the context of the test has ended
		out, err := exec.Command(s.kubectl, "--kubeconfig="+s.admin, "delete", "pods", "--all", "--all-namespaces",
			"--grace-period=0", "--force", "--wait=false").CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	s.in.eventually("the node is ready", func() error {
		if out, errs, _ := k.try("", "get", "nodes", "e2e"); !strings.Contains(out, " Ready ") {
			return errors.New(out + errs)
		}
		return nil
	})
}

// join runs a control plane with one node, which pulls all images from a local registry.
func (s *suite) join() {
	t := s.t
	t.Helper()
	s.server = apitest.Start(t, apitest.Options{Flags: []string{"--enable-admission-plugins=NodeRestriction", "--kubelet-timeout=10s"}})
	s.server.RunControllers("*")
	s.admin = s.server.Kubeconfig(s.server.Address, apitest.Request{Name: "admin", Groups: []string{"system:masters"}})
	hosts := filepath.Join(t.TempDir(), "certs.d")
	suiteImages(t, s.dir, hosts)
	s.in = newInstance(t, "kubeconfig: "+s.server.Kubeconfig(s.server.Address, apitest.Node("e2e")), fmt.Sprintf("port: %d", freePort(t)), "apiServerPods: true", "apiServerServices: true",
		"authentication: {x509: {clientCAFile: "+s.server.Dir+"/ca.crt}, webhook: {enabled: true}}", "authorization: {mode: Webhook}",
		"registryHostsDirs: ["+hosts+"]", "registryPullQPS: 0", "maxParallelImagePulls: 4", manyProcessors)
	t.Cleanup(s.empty)
	s.in.start()
	s.server.Eventually("the node is ready, and so is its namespace", func() error {
		var n corev1.Node
		if err := s.server.Do(http.MethodGet, "/api/v1/nodes/e2e", nil, &n); err != nil {
			return err
		}
		if !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) || len(n.Spec.Taints) > 0 {
			return fmt.Errorf("%+v %+v", n.Status.Conditions, n.Spec.Taints)
		}
		return s.server.Do(http.MethodGet, "/api/v1/namespaces/default/serviceaccounts/default", nil, nil)
	})
}

// empty removes leftovers of specs: the instance waits until all pods are gone.
func (s *suite) empty() {
	s.server.Eventually("there are no pods", func() error {
		var list corev1.PodList
		if err := s.server.Do(http.MethodGet, "/api/v1/pods", nil, &list); err != nil || len(list.Items) == 0 {
			return err
		}
		for i := range list.Items {
			p := &list.Items[i]
			_ = s.server.Do(http.MethodDelete, "/api/v1/namespaces/"+p.Namespace+"/pods/"+p.Name, map[string]any{"gracePeriodSeconds": 0}, nil) // it may be gone
		}
		return fmt.Errorf("%d are left", len(list.Items))
	})
}

// specResult is the result of a spec.
type specResult struct {
	State   string
	Message string
	Took    time.Duration
}

// runAll runs the specs: those that may share the node in lanes, each of those that take minutes in a lane of its own, then the others.
func (s *suite) runAll(names []string) map[string]specResult {
	alone := func(name string) bool {
		return strings.Contains(name, "[Serial]") || strings.Contains(name, "[Disruptive]")
	}
	lanes := make([][]string, suiteLanes)
	var serial []string
	next := 0
	for _, name := range names {
		switch {
		case alone(name):
			serial = append(serial, name)
		case strings.Contains(name, slowLabel) && !many.MatchString(name) || watches.MatchString(name):
			lanes = append(lanes, []string{name})
		default:
			lanes[next%suiteLanes] = append(lanes[next%suiteLanes], name)
			next++
		}
	}
	results := map[string]specResult{}
	var mu sync.Mutex
	var g sync.WaitGroup
	for i, lane := range lanes {
		g.Go(func() {
			got := s.run(fmt.Sprint("lane", i), lane)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(results, got)
		})
	}
	g.Wait()
	maps.Copy(results, s.run("serial", serial))
	return results
}

// run runs some of the specs sequentially, and returns their results.
func (s *suite) run(lane string, names []string) map[string]specResult {
	if len(names) == 0 {
		return nil
	}
	report := filepath.Join(s.dir, lane+".json")
	args := []string{
		"--kubeconfig=" + s.admin, "--provider=skeleton", "--num-nodes=1", "--ginkgo.json-report=" + report, "--ginkgo.no-color", "--ginkgo.timeout=1h", "--ginkgo.silence-skips", "--ginkgo.seed=1",
		"--delete-namespace-on-failure=true", "--dump-logs-on-failure=false", "--disable-log-dump", "--kubectl-path=" + s.kubectl,
	}
	for _, name := range names {
		args = append(args, "--ginkgo.focus="+regexp.QuoteMeta(name)+"$") // the name of the suite comes before it
	}
	_ = os.Remove(report)
	log, err := os.Create(filepath.Join(s.dir, lane+".log"))
	if err != nil {
		s.t.Error(err)
		return nil
	}
	defer log.Close()
	c := exec.CommandContext(s.t.Context(), filepath.Join(s.dir, "e2e.test"), args...)
	c.Stdout, c.Stderr, c.Dir = log, log, s.dir
	var exit *exec.ExitError
	if err := c.Run(); err != nil && !errors.As(err, &exit) { // that specs fail is in the report
		s.t.Error(err)
	}
	results, err := readReport(report)
	if err != nil {
		s.t.Errorf("%s: %v; see %s", lane, err, log.Name())
	}
	return results
}

// readReport reads a report of ginkgo.
func readReport(path string) (map[string]specResult, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var reports []struct {
		SpecReports []struct {
			ContainerHierarchyTexts []string
			LeafNodeText, State     string
			LeafNodeType            string
			RunTime                 time.Duration
			Failure                 struct{ Message string }
		}
	}
	if err := json.Unmarshal(b, &reports); err != nil {
		return nil, err
	}
	out := map[string]specResult{}
	for _, r := range reports {
		for _, spec := range r.SpecReports {
			name := strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " ")
			switch {
			case spec.LeafNodeType == "It" && spec.State != "skipped" || spec.LeafNodeType == "It" && spec.Failure.Message != "":
				out[name] = specResult{spec.State, spec.Failure.Message, spec.RunTime}
			case spec.LeafNodeType != "It" && spec.State != "passed" && spec.State != "skipped":
				return out, fmt.Errorf("%s: %s", spec.LeafNodeType, spec.Failure.Message)
			}
		}
	}
	return out, nil
}

// expectedFailures are the specs that are known to fail, with the reason.
func expectedFailures(t *testing.T, file string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	known, why := map[string]string{}, ""
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if text, ok := strings.CutPrefix(line, "#"); ok {
			why = strings.TrimSpace(text)
		} else if line != "" {
			known[line] = why
		}
	}
	return known
}

// report writes a table, and fails the test for each spec with an unexpected result.
func (s *suite) report(names []string, results map[string]specResult, took time.Duration) {
	s.t.Helper()
	known := expectedFailures(s.t, s.known)
	counts := map[string]int{}
	var table strings.Builder
	for _, name := range names {
		r, ok := results[name]
		if !ok {
			r.State = "missing"
		}
		counts[r.State]++
		message, _, _ := strings.Cut(strings.TrimSpace(r.Message), "\n")
		fmt.Fprintf(&table, "%s\t%.1f\t%s\t%s\n", r.State, r.Took.Seconds(), name, message)
		why, fails := known[name]
		switch {
		case r.State != "passed" && !fails:
			s.t.Errorf("%s: %s\n%s", r.State, name, r.Message)
		case r.State == "passed" && fails:
			s.t.Errorf("%s passes: take it off %s (%s)", name, s.known, why)
		}
	}
	path := filepath.Join(s.dir, s.results)
	if err := os.WriteFile(path, []byte(table.String()), 0o600); err != nil {
		s.t.Error(err)
	}
	summary := fmt.Sprintf("conformance: %d of %d specs in %s: %d passed, %d failed, others %d; table: %s", len(names), suiteSpecs, took.Round(time.Second),
		counts["passed"], counts["failed"], len(names)-counts["passed"]-counts["failed"], path)
	s.t.Log(summary)
	fmt.Println(summary)
}
