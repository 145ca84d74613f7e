//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"monopod/e2e/golden"
	"monopod/node/apiserver/apitest"
)

// TestGoldenAPIServer: the scripts in testdata/golden get the same responses from monopod as from a kube-apiserver without controllers,
// except for the differences in allowed.yaml. Unused entries of that list fail, so that it only shrinks.
func TestGoldenAPIServer(t *testing.T) {
	t.Parallel()
	steps, err := golden.Load("testdata/golden")
	if err != nil {
		t.Fatal(err)
	}
	list, err := golden.LoadAllowed("testdata/golden/allowed.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kube := apitest.Start(t, apitest.Options{Flags: []string{"--disable-admission-plugins=DefaultTolerationSeconds"}})
	in := newInstance(t, fmt.Sprintf("apiServer: {address: '127.0.0.1:%d'}", freePort(t)))
	in.start()
	if out, err := in.run("cordon"); err != nil { // no pod starts: the kube-apiserver has no kubelet either
		t.Fatalf("%v\n%s", err, out)
	}
	own := filepath.Join(in.dir, "admin.kubeconfig")
	if out, err := in.run("kubeconfig", "admin", "--output", own); err != nil {
		t.Fatalf("kubeconfig: %v\n%s", err, out)
	}
	servers := []*golden.Server{
		goldenServer(t, "kube", kube.Kubeconfig(kube.Address, apitest.Request{Name: "admin", Groups: []string{"system:masters"}})),
		goldenServer(t, "monopod", own),
	}
	answers := [2]chan []*golden.Answer{make(chan []*golden.Answer, 1), make(chan []*golden.Answer, 1)}
	for i, s := range servers {
		go func() { answers[i] <- goldenRun(t.Context(), t, s, steps) }()
	}
	want, have := <-answers[0], <-answers[1]
	var differences []golden.Difference
	for i := range steps {
		if a := want[i]; a != nil && a.Code != steps[i].Code {
			t.Errorf("%s: Kubernetes answers %d, the script says %d: %v", steps[i].Name, a.Code, steps[i].Code, a.Body)
		}
		if want[i] != nil && have[i] != nil {
			differences = append(differences, golden.Compare(&steps[i], want[i], have[i])...)
		}
	}
	differences = append(differences, goldenOpenAPI(t, servers[0], servers[1])...)
	wrong, unused := golden.Judge(differences, list)
	for _, line := range goldenReport(wrong) {
		t.Error(line)
	}
	for _, pair := range unused {
		t.Errorf("allowed.yaml: no difference of request %q at path %q; remove the request or the path", pair[0], pair[1])
	}
	t.Logf("%d requests, %d differences, %d of them not allowed; %d entries allow %d pairs", len(steps), len(differences), len(wrong), len(list), golden.Pairs(list))
}

func goldenServer(t *testing.T, name, kubeconfig string) *golden.Server {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &golden.Server{Name: name, URL: strings.TrimSuffix(cfg.Host, "/"), Client: &http.Client{Transport: transport}}
}

// goldenRun returns the responses to all steps; nil for steps that are not sent to this server.
func goldenRun(ctx context.Context, t *testing.T, s *golden.Server, steps []golden.Step) []*golden.Answer {
	all := make([]*golden.Answer, len(steps))
	for i := range steps {
		a, err := s.Run(ctx, &steps[i])
		if err != nil {
			t.Error(err)
			continue
		}
		all[i] = a
	}
	return all
}

// goldenReport has one line for each difference, with the requests that show it.
func goldenReport(differences []golden.Difference) []string {
	steps := map[string][]string{}
	var order []string
	for _, d := range differences {
		text := fmt.Sprintf("%s: Kubernetes %s, monopod %s", d.Path, goldenValue(d.Want), goldenValue(d.Have))
		if steps[text] == nil {
			order = append(order, text)
		}
		steps[text] = append(steps[text], d.Step)
	}
	for i, text := range order {
		all := steps[text]
		order[i] = fmt.Sprintf("%s\n\t%d: %s", text, len(all), strings.Join(all[:min(len(all), 3)], " | "))
	}
	slices.Sort(order)
	return order
}

func goldenValue(v any) string {
	if v == nil {
		return "nothing"
	}
	text := fmt.Sprint(v)
	return text[:min(len(text), 300)]
}
