//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// The figures of the Kubernetes API, each with its limit, on an otherwise idle machine: make figures-api runs them.
const (
	mostIdleMore    = 1 << 10  // KiB over an agent whose API is off
	mostRestMore    = 10 << 10 // KiB over the idle agent, at rest after 1,000 requests
	mostApply       = 250 * time.Millisecond
	mostPodTable    = 5 * time.Millisecond
	mostFirstAnswer = time.Second
)

// figures starts an agent without the race detector that serves its API.
func figures(t *testing.T, extra ...string) *instance {
	t.Helper()
	if os.Getenv("MONOPOD_FIGURES") == "" {
		t.Skip("make figures-api runs it")
	}
	in := newInstance(t, append(extra, fmt.Sprintf("apiServer: {address: '127.0.0.1:%d'}", freePort(t)))...)
	in.agent = "monopod-client"
	in.start()
	return in
}

func (in *instance) adminConfig() *rest.Config {
	in.t.Helper()
	file := filepath.Join(in.dir, "admin.kubeconfig")
	if out, err := in.run("kubeconfig", "admin", "--output", file); err != nil {
		in.t.Fatalf("%v\n%s", err, out)
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		in.t.Fatal(err)
	}
	config.QPS = -1
	return config
}

// ownConnection returns a configuration whose clients share no connection with others.
func ownConnection(config *rest.Config) *rest.Config {
	own := rest.CopyConfig(config)
	own.Dial = (&net.Dialer{}).DialContext
	return own
}

// median returns the median, and describes all.
func median(took []time.Duration) (time.Duration, string) {
	slices.Sort(took)
	m := took[len(took)/2]
	return m, fmt.Sprintf("median %v, fastest %v, slowest %v, of %d", m, took[0], took[len(took)-1], len(took))
}

// TestFigureAPIApply measures the time from `kubectl apply` of a Deployment, as a client sends it, until its process runs.
func TestFigureAPIApply(t *testing.T) {
	in := figures(t)
	config := in.adminConfig()
	s := &apiSoak{t: t, in: in, config: config}
	apps, marks := s.rest("apps", runtime.ContentTypeJSON), t.TempDir()
	if err := os.Chmod(marks, 0o777); err != nil { //nolint:gosec // containers write into it
		t.Fatal(err)
	}
	var all, answers []time.Duration
	for n := range 21 {
		name := fmt.Sprintf("quick%d", n)
		mark := filepath.Join(marks, name)
		text := fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 1
      volumes: [{name: marks, hostPath: {path: %[3]q}}]
      containers: [{name: c, image: %[2]q, command: [sh, -c, ": > /marks/%[1]s; sleep 3600"], volumeMounts: [{name: marks, mountPath: /marks}]}]
`, name, image, marks)
		began := time.Now()
		if err := apps.Patch(types.ApplyPatchType).Namespace("default").Resource("deployments").Name(name).Param("fieldManager", "f").Body([]byte(text)).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
		answered := time.Since(began)
		in.eventually("the process runs", func() error { _, err := os.Stat(mark); return err })
		if n > 0 { // the first one waits for its image
			all, answers = append(all, time.Since(began)), append(answers, answered)
		}
	}
	process, described := median(all)
	t.Logf("from apply of a Deployment to its process: %s", described)
	_, described = median(answers)
	t.Logf("from apply of a Deployment to the response: %s", described)
	if process > mostApply {
		t.Errorf("a process runs %v after its Deployment was applied; the limit is %v", process, mostApply)
	}
}

// TestFigureAPIFirstResponse measures the time from `monopod up --api` to the first response to `kubectl get nodes`.
func TestFigureAPIFirstResponse(t *testing.T) {
	if os.Getenv("MONOPOD_FIGURES") == "" {
		t.Skip("make figures-api runs it")
	}
	r := newClusters(t)
	best := time.Hour
	for range 5 {
		best = min(best, r.firstResponse())
	}
	if best > mostFirstAnswer {
		t.Errorf("kubectl has its first response after %v at best; the limit is %v", best, mostFirstAnswer)
	}
}

// tableOfPods is the media type that `kubectl get` requests.
const tableOfPods = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"

// TestFigureAPITable measures the list of `kubectl get pods` with 100 running pods, one of which changes before each list. The time includes
// the connection, which is open, and reading the response.
func TestFigureAPITable(t *testing.T) {
	const pods = 100
	in := figures(t, manyProcessors)
	config := in.adminConfig()
	changed := &apiSoak{t: t, in: in, config: config}
	core := changed.rest("", runtime.ContentTypeJSON)
	var text strings.Builder
	for n := range pods - 1 {
		text.WriteString(sleeper(fmt.Sprintf("pod%d", n), ":") + "---\n")
	}
	in.put("pods", text.String())
	if err := core.Patch(types.ApplyPatchType).Namespace("default").Resource("pods").Name("changed").Param("fieldManager", "f").Body([]byte(sleeper("changed", ":"))).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	in.eventuallyUntil(time.Now().Add(5*time.Minute), "all pods are ready", func() error {
		list, err := in.podList()
		ready := slices.DeleteFunc(list, func(p corev1.Pod) bool { return !isReady(p) })
		if err == nil && len(ready) != pods {
			err = fmt.Errorf("%d pods are ready", len(ready))
		}
		return err
	})
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	var took []time.Duration
	size := 0
	for n := range 51 {
		if err := core.Patch(types.MergePatchType).Namespace("default").Resource("pods").Name("changed").Body(fmt.Appendf(nil, `{"metadata":{"labels":{"n":"%d"}}}`, n)).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
		letTimePass(100 * time.Millisecond) // what follows from the change is not part of the list
		began := time.Now()
		body, err := request(t.Context(), client, http.MethodGet, config.Host+"/api/v1/namespaces/default/pods?limit=500", tableOfPods, "")
		if err != nil {
			t.Fatal(err)
		}
		size = len(body)
		if n > 0 { // the first one connects
			took = append(took, time.Since(began))
		}
	}
	list, described := median(took)
	t.Logf("Table of %d pods, %d KiB: %s", pods, size>>10, described)
	if list > mostPodTable {
		t.Errorf("a list of %d pods takes %v; the limit is %v", pods, list, mostPodTable)
	}
}

// TestFigureAPIMemory measures an agent without pods: when idle, with the API off and on; and after 1,000 requests, and when idle again.
func TestFigureAPIMemory(t *testing.T) {
	on := figures(t, "enableProfilingHandler: true")
	off := newInstance(t, "enableProfilingHandler: true")
	off.agent = on.agent
	off.start()
	letTimePass(45 * time.Second)
	at := steady(off, on)
	t.Logf("idle, API off: %s", at[0].parts)
	t.Logf("idle, API on: %s", at[1].parts)
	without, idle := at[0].kib, at[1].kib
	if idle > without+mostIdleMore {
		t.Errorf("the API takes %d KiB when idle; the limit is %d", idle-without, mostIdleMore)
	}
	for what, n := range mixed(t, ownConnection(on.adminConfig()), 1000) {
		t.Logf("%5d %s", n, what)
	}
	t.Logf("right after 1,000 requests: %s", on.parts())
	letTimePass(75 * time.Second) // memory of requests is released after a minute
	at = steady(on)
	rest := at[0].kib
	t.Logf("at rest after them: %s", at[0].parts)
	if rest > idle+mostRestMore {
		t.Errorf("the agent keeps %d KiB after 1,000 requests; the limit is %d", rest-idle, mostRestMore)
	}
	if profile := os.Getenv("MONOPOD_FIGURES_HEAP"); profile != "" { // a heap profile of what is kept
		on.write(profile, on.curl("/debug/pprof/heap"))
	}
}

// reading is the memory of an agent in KiB, and its parts.
type reading struct {
	kib   int
	parts string
}

// steady returns the medians of the memory of agents over two minutes. Meanwhile Go collects garbage at least once; then monopod drops the
// pages of its binary, which idle work maps again little by little.
func steady(ins ...*instance) []reading {
	all := make([][]reading, len(ins))
	for range 25 {
		letTimePass(5 * time.Second)
		for i, in := range ins {
			kib, err := in.lookAtMemory()
			if err != nil {
				in.t.Fatal(err)
			}
			all[i] = append(all[i], reading{kib, in.parts()})
		}
	}
	medians := make([]reading, len(ins))
	for i, found := range all {
		slices.SortFunc(found, func(a, b reading) int { return a.kib - b.kib })
		medians[i] = found[len(found)/2]
	}
	return medians
}

// mixed sends requests as clients do, in turn, and returns how many of each.
func mixed(t *testing.T, config *rest.Config, requests int) map[string]int {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	sent := map[string]int{}
	send := func(what, method, path, accept, body string) {
		t.Helper()
		sent[what]++
		if _, err := request(t.Context(), client, method, config.Host+path, accept, body); err != nil {
			t.Fatal(err)
		}
	}
	const (
		json, protobuf = runtime.ContentTypeJSON, runtime.ContentTypeProtobuf
		core, apps     = "/api/v1/namespaces/default/", "/apis/apps/v1/namespaces/default/"
		initial        = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
		groups         = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
		apply          = "?fieldManager=kubectl&force=true"
	)
	// One round is what a few invocations of kubectl and informers send.
	for n := 0; ; n++ {
		name := fmt.Sprintf("mixed%d", n%5)
		deployment := strings.Replace(soakDeployment(name, 0), "n: '0'", fmt.Sprintf("n: '%d'", n), 1)
		for _, r := range [][4]string{
			{"discovery", "/api", groups},
			{"discovery", "/apis", groups},
			{"discovery", "/api/v1", json},
			{"discovery", "/apis/apps/v1", json},
			{"OpenAPI", "/openapi/v3", json},
			{"OpenAPI", "/openapi/v3/api/v1", json},
			{"OpenAPI", "/openapi/v3/apis/apps/v1", json},
			{"OpenAPI", "/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"},
			{"list, Table", core + "pods?limit=500", tableOfPods},
			{"list, Table", "/api/v1/nodes?limit=500", tableOfPods},
			{"list, Table", core + "events?limit=500", tableOfPods},
			{"list, JSON", core + "pods", json},
			{"list, JSON", apps + "deployments", json},
			{"list, JSON", "/api/v1/configmaps", json},
			{"list, protobuf", core + "pods", protobuf},
			{"list, protobuf", apps + "replicasets", protobuf},
			{"list, protobuf", core + "services", protobuf},
			{"get", "/api/v1/nodes/e2e", json},
			{"get", "/api/v1/namespaces/default", protobuf},
			{"apply a ConfigMap", core + "configmaps/" + name + apply, json, soakConfigMap(name, n)},
			{"apply a Deployment", apps + "deployments/" + name + apply, json, deployment},
			{"get", core + "configmaps/" + name, json},
			{"get", apps + "deployments/" + name, protobuf},
			{"list, Table", apps + "deployments?limit=500", tableOfPods},
			{"watch", core + "pods?watch=1" + initial, json},
			{"watch", apps + "deployments?watch=1" + initial, protobuf},
			{"watch", core + "configmaps?watch=1" + initial, tableOfPods},
			{"delete", core + "configmaps/" + name, json},
			{"delete", apps + "deployments/" + name, json},
		} {
			if requests == 0 {
				return sent
			}
			requests--
			method := http.MethodGet
			switch {
			case r[3] != "":
				method = http.MethodPatch
			case r[0] == "delete":
				method = http.MethodDelete
			}
			send(r[0], method, r[1], r[2], r[3])
		}
	}
}

// request sends a request and returns its response; of a watch, what it begins with, up to the bookmark after it.
func request(ctx context.Context, client *http.Client, method, url, accept, body string) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", accept)
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", string(types.ApplyYAMLPatchType))
	}
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var read []byte
	if answer.StatusCode >= http.StatusBadRequest || !strings.Contains(url, "watch=1") {
		if read, err = io.ReadAll(answer.Body); err == nil && answer.StatusCode >= http.StatusBadRequest {
			err = fmt.Errorf("%s %s: %s: %s", method, url, answer.Status, read)
		}
		return read, err
	}
	for part := make([]byte, 16<<10); !strings.Contains(string(read), metav1.InitialEventsAnnotationKey); {
		n, err := answer.Body.Read(part)
		if read = append(read, part[:n]...); err != nil {
			return nil, fmt.Errorf("%s: %w after %s", url, err, read)
		}
	}
	return read, nil
}

// waiting is a pod that never starts: its volume is missing. So it costs the machine no processes.
const waiting = `apiVersion: v1
kind: Pod
metadata: {name: %[1]s, labels: {app: waiting}}
spec:
  containers: [{name: c, image: %[2]q, command: [sleep, "3600"], volumeMounts: [{name: v, mountPath: /v}]}]
  volumes: [{name: v, configMap: {name: missing}}]
---
`

// TestFigureAPIWatches reports what 50 clients cost that list and watch 1,000 pods, and how soon they see a change. The pods do not run.
func TestFigureAPIWatches(t *testing.T) {
	const pods, clients = 1000, 50
	in := figures(t, "maxPods: 1100")
	config := in.adminConfig()
	var text strings.Builder
	for n := range pods {
		fmt.Fprintf(&text, waiting, fmt.Sprintf("waiting%d", n), image)
	}
	in.put("waiting", text.String())
	admin := kubernetes.NewForConfigOrDie(config).CoreV1().Pods("default")
	if _, err := admin.Create(t.Context(), podThatWaits(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	in.eventually("all pods are listed", func() error {
		list, err := admin.List(t.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) != pods+1 {
			err = fmt.Errorf("%d pods", len(list.Items))
		}
		return err
	})
	letTimePass(75 * time.Second)
	t.Logf("%d pods, before: %s", pods, steady(in)[0].parts)
	w := listAndWatch(t, config, clients)
	t.Logf("%d lists at the same time: %v until the last one, %s", clients, w.listed, w.each)
	t.Logf("%d watches: %s", clients, in.parts())
	var took []time.Duration
	for n := range 21 {
		began := time.Now()
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{"n":"%d"}}}`, n)
		if _, err := admin.Patch(t.Context(), "changed", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		w.see(fmt.Sprint(n))
		took = append(took, time.Since(began))
	}
	_, described := median(took)
	t.Logf("from the patch of a pod to all %d watches: %s", clients, described)
	t.Logf("%d watches, after the changes: %s", clients, in.parts())
	w.stop()
	letTimePass(75 * time.Second)
	t.Logf("after them: %s", steady(in)[0].parts)
}

func podThatWaits() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "changed"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Image: image, VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}},
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "missing"},
		}}}},
	}}
}

// apiWatches are clients that list and watch pods, each with a connection of its own.
type apiWatches struct {
	t *testing.T
	// listed is the time until all have listed, each the times of single lists.
	listed time.Duration
	each   string
	// seen has the label n of a changed pod, once for each client.
	seen    chan string
	clients int
	stop    func()
}

// listAndWatch starts clients that list all pods at the same time, and then watch them.
func listAndWatch(t *testing.T, config *rest.Config, clients int) *apiWatches {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var following, listing sync.WaitGroup
	w := &apiWatches{t: t, seen: make(chan string, clients), clients: clients, stop: func() { cancel(); following.Wait() }}
	t.Cleanup(w.stop)
	began, took := time.Now(), make([]time.Duration, clients)
	for i := range clients {
		own := ownConnection(config)
		own.ContentType = runtime.ContentTypeProtobuf
		pods := kubernetes.NewForConfigOrDie(own).CoreV1().Pods("")
		listing.Go(func() {
			list, err := pods.List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			took[i] = time.Since(began)
			changes, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true})
			if err != nil {
				t.Error(err)
				return
			}
			following.Go(func() { w.follow(ctx, changes) })
		})
	}
	listing.Wait()
	if t.Failed() {
		t.FailNow()
	}
	_, w.each = median(took)
	w.listed = slices.Max(took)
	return w
}

// follow reports each new label of the changed pod.
func (w *apiWatches) follow(ctx context.Context, changes watch.Interface) {
	defer changes.Stop()
	last := ""
	for e := range changes.ResultChan() {
		pod, ok := e.Object.(*corev1.Pod)
		switch {
		case ctx.Err() != nil: // how it ends
		case e.Type == watch.Error:
			w.t.Errorf("a watch ended: %v", e.Object)
		case ok && e.Type == watch.Modified && pod.Labels["n"] != last:
			last = pod.Labels["n"]
			select {
			case w.seen <- last:
			case <-ctx.Done():
			}
		}
	}
	if ctx.Err() == nil {
		w.t.Error("a watch ended")
	}
}

// see waits until all clients have seen a label.
func (w *apiWatches) see(n string) {
	w.t.Helper()
	for i := range w.clients {
		select {
		case got := <-w.seen:
			if got != n {
				w.t.Fatalf("a client saw %s, want %s", got, n)
			}
		case <-time.After(patience):
			w.t.Fatalf("%d of %d clients have seen the change", i, w.clients)
		}
	}
}
