//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"monopod/internal/pause"
)

// apiSoak is a machine whose pods are changed only over the Kubernetes API.
type apiSoak struct {
	t      *testing.T
	in     *instance
	config *rest.Config

	mu sync.Mutex
	// done counts requests of clients by their result.
	done map[string]int
	// killed and started are the times of the last kill and start of the agent; started is before killed while it is away.
	killed, started time.Time
	// peak is the largest memory of the agent.
	peak int
}

// TestSoakAPI lets five clients apply, patch, scale and delete at random while the agent is killed again and again. At the end the API
// shows what runs, all informers agree with a list, and there are no leftovers. MONOPOD_SOAK sets the duration.
func TestSoakAPI(t *testing.T) {
	if os.Getenv("MONOPOD_SOAK") == "" {
		t.Skip("make soak-api runs it")
	}
	duration, err := time.ParseDuration(os.Getenv("MONOPOD_SOAK"))
	if err != nil {
		t.Fatal(err)
	}
	in := newInstance(t, fmt.Sprintf("apiServer: {address: '127.0.0.1:%d'}", freePort(t)), "enableProfilingHandler: true", "crashLoopBackOff: {maxContainerRestartPeriod: 1s}")
	in.agent = "monopod-client" // the same without the race detector
	in.start()
	s := &apiSoak{t: t, in: in, config: in.adminConfig(), done: map[string]int{}, started: time.Now()}
	before := in.census()
	informers := s.informers()
	s.warmUp()
	s.closeIdle()
	first := in.footprint()
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	var clients sync.WaitGroup
	for n := range 5 {
		clients.Go(func() { s.client(ctx, n) })
	}
	kills := s.kills(ctx, time.Now().Add(duration*3/4))
	clients.Wait()
	for _, what := range slices.Sorted(maps.Keys(s.done)) {
		t.Logf("%7d %s", s.done[what], what)
	}
	t.Logf("%d kills, at most %.1f MiB", kills, float64(s.peak)/1024)
	in.eventually("the API shows what runs", s.settled)
	in.eventually("all informers have what a list has", func() error { return s.same(informers) })
	s.empty()
	in.eventually("all informers are empty", func() error { return s.same(informers) })
	in.sameCensus(before)
	s.closeIdle()
	last := in.footprint()
	t.Logf("at the start %v; right after all %v: %s", first, last, in.parts())
	if last.open > first.open+moreFiles || last.goroutines > first.goroutines+moreGoroutines || s.peak > mostAPIMemory {
		t.Errorf("the agent takes more than at its start: %v, then %v, and %d KiB at times\n%s\nnow:\n%s", first, last, s.peak, first.stacks, last.stacks)
	}
	// The log of changes is kept for five minutes, and the memory of requests is released after a minute.
	in.eventuallyUntil(time.Now().Add(10*time.Minute), "the agent gives memory back", func() error {
		now, err := in.lookAtMemory()
		if err == nil && now > first.rss+moreAPIMemory {
			err = fmt.Errorf("%d KiB, and %d at the start", now, first.rss)
		}
		return err
	})
	t.Logf("at rest: %s", in.parts())
}

// Limits of the memory of the agent, in KiB: under load, and the growth when idle since its start.
const mostAPIMemory, moreAPIMemory = 150 << 10, 10 << 10

// rest returns a client for a group.
func (s *apiSoak) rest(group, media string) *rest.RESTClient {
	c := rest.CopyConfig(s.config)
	c.APIPath, c.GroupVersion = "/apis", &schema.GroupVersion{Group: group, Version: "v1"}
	if group == "" {
		c.APIPath = "/api"
	}
	c.NegotiatedSerializer, c.ContentType, c.AcceptContentTypes = scheme.Codecs.WithoutConversion(), media, media
	client, err := rest.RESTClientFor(c)
	if err != nil {
		s.t.Error(err)
	}
	return client
}

// closeIdle closes the connections that no request uses: how many there are depends on how many clients have been waiting at once.
func (s *apiSoak) closeIdle() {
	utilnet.CloseIdleConnectionsFor(s.rest("", runtime.ContentTypeJSON).Client.Transport)
}

// soakKind is a kind that the clients change.
type soakKind struct {
	group, plural string
	object        runtime.Object
	list          func() runtime.Object
}

func soakKinds() []soakKind {
	return []soakKind{
		{"", "pods", &corev1.Pod{}, func() runtime.Object { return &corev1.PodList{} }},
		{"", "configmaps", &corev1.ConfigMap{}, func() runtime.Object { return &corev1.ConfigMapList{} }},
		{"apps", "deployments", &appsv1.Deployment{}, func() runtime.Object { return &appsv1.DeploymentList{} }},
		{"batch", "jobs", &batchv1.Job{}, func() runtime.Object { return &batchv1.JobList{} }},
	}
}

// informers follow all kinds by JSON and by protobuf, until the test ends.
func (s *apiSoak) informers() map[string]cache.Store {
	all := map[string]cache.Store{}
	var running sync.WaitGroup
	stop := make(chan struct{})
	s.t.Cleanup(func() { close(stop); running.Wait() })
	for _, media := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		for _, k := range soakKinds() {
			source := cache.NewListWatchFromClient(s.rest(k.group, media), k.plural, "default", fields.Everything())
			store, controller := cache.NewInformerWithOptions(cache.InformerOptions{ListerWatcher: source, ObjectType: k.object, Handler: cache.ResourceEventHandlerFuncs{}})
			running.Go(func() { controller.Run(stop) })
			all[k.plural+" "+media] = store
		}
	}
	return all
}

// warmUp requests everything once, so that everything created on first use exists.
func (s *apiSoak) warmUp() {
	for n := range 20 {
		for _, k := range soakKinds() {
			media := []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf}[n%2]
			if err := s.rest(k.group, media).Get().Namespace("default").Resource(k.plural).Do(s.t.Context()).Error(); err != nil {
				s.t.Error(err)
			}
		}
	}
	c := s.rest("", runtime.ContentTypeJSON)
	for _, name := range []string{"warm1", "warm2"} {
		s.say("warm", time.Now(), c.Patch(types.ApplyPatchType).Namespace("default").Resource("configmaps").Name(name).Param("fieldManager", "warm").Body([]byte(soakConfigMap(name, 1))).Do(s.t.Context()).Error())
		s.say("warm", time.Now(), c.Delete().Namespace("default").Resource("configmaps").Name(name).Do(s.t.Context()).Error())
	}
}

func soakConfigMap(name string, n int) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, labels: {n: '%d'}}\ndata: {a: %q}\n", name, n, strings.Repeat("x", n%3000))
}

func soakDeployment(name string, n int) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}, annotations: {n: '%[3]d'}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: %[4]q, command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"]}]
`, name, n%3, n%2, image)
}

func soakJob(name string) string {
	return fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata: {name: %[1]s}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: %[2]q, command: [sleep, '1']}]}}}
`, name, image)
}

// client sends random requests until ctx ends.
func (s *apiSoak) client(ctx context.Context, number int) {
	random := rand.New(rand.NewPCG(uint64(number), 13))
	media := []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf}[number%2]
	core, apps, batch := s.rest("", media), s.rest("apps", media), s.rest("batch", media)
	manager := fmt.Sprintf("client-%d", number)
	for ctx.Err() == nil {
		n := random.IntN(1000)
		pod, deployment, configMap := fmt.Sprintf("pod%d", n%4), fmt.Sprintf("web%d", n%3), fmt.Sprintf("text%d", n%8)
		job := fmt.Sprintf("job%d", n%3)
		apply := func(c *rest.RESTClient, plural, name, text string) error {
			return c.Patch(types.ApplyPatchType).Namespace("default").Resource(plural).Name(name).Param("fieldManager", manager).Param("force", "true").Body([]byte(text)).Do(ctx).Error()
		}
		var err error
		what, began := "", time.Now()
		switch random.IntN(12) {
		case 0, 1:
			what, err = "apply a ConfigMap", apply(core, "configmaps", configMap, soakConfigMap(configMap, n))
		case 2:
			what, err = "apply a Deployment", apply(apps, "deployments", deployment, soakDeployment(deployment, n))
		case 3:
			what, err = "apply a Pod", apply(core, "pods", pod, sleeper(pod, ":"))
		case 4:
			what, err = "scale a Deployment", apps.Patch(types.MergePatchType).Namespace("default").Resource("deployments").Name(deployment).SubResource("scale").
				Body([]byte(fmt.Sprintf(`{"spec":{"replicas":%d}}`, n%4))).Do(ctx).Error()
		case 5:
			what, err = "label a Pod", core.Patch(types.StrategicMergePatchType).Namespace("default").Resource("pods").Name(pod).
				Body([]byte(fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, n))).Do(ctx).Error()
		case 6:
			what, err = "delete a Pod", core.Delete().Namespace("default").Resource("pods").Name(pod).Do(ctx).Error()
		case 7:
			what, err = "delete a Deployment", apps.Delete().Namespace("default").Resource("deployments").Name(deployment).Do(ctx).Error()
		case 8:
			what, err = "delete a ConfigMap", core.Delete().Namespace("default").Resource("configmaps").Name(configMap).Do(ctx).Error()
		case 9:
			what, err = "list Pods", core.Get().Namespace("default").Resource("pods").Do(ctx).Error()
		case 10:
			what, err = "apply a Job", apply(batch, "jobs", job, soakJob(job))
		case 11:
			what, err = "delete a Job", batch.Delete().Namespace("default").Resource("jobs").Name(job).Do(ctx).Error()
		}
		s.say(what, began, err)
		pause.For(ctx, time.Duration(random.IntN(200))*time.Millisecond)
	}
}

// say counts a request that began at a time. An unexplained error fails the test.
func (s *apiSoak) say(what string, began time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer, status := "ok", apierrors.APIStatus(nil)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return
	case errors.As(err, &status):
		answer = string(status.Status().Reason)
		if !s.explained(what, began, status.Status()) {
			s.t.Errorf("%s: %v", what, err)
		}
	case err != nil: // the agent was killed in the meantime, or is down
		answer = "no answer"
		if began.After(s.started.Add(time.Second)) && s.started.After(s.killed) {
			s.t.Errorf("%s, which began %v after the start of the agent: %v", what, began.Sub(s.started), err)
		}
	}
	s.done[what+": "+answer]++
}

// settling is how long after a start some pods may not have been observed yet.
const settling = 20 * time.Second

// explained reports whether a refusal is expected. None is permanent: terminating objects can be changed, and nothing is defined elsewhere.
func (s *apiSoak) explained(what string, began time.Time, status metav1.Status) bool {
	switch status.Code {
	case http.StatusNotFound: // others delete it
		return !strings.HasPrefix(what, "apply") && !strings.HasPrefix(what, "list")
	case http.StatusServiceUnavailable: // the runtime has not been asked since the start
		starts := s.started.Before(s.killed) || began.Before(s.started.Add(settling))
		return starts && (strings.Contains(what, "Pod") || strings.Contains(what, "Job")) && strings.Contains(status.Message, "s are not available yet: ")
	}
	return false
}

// kills kills the agent every few seconds until a time or the end of ctx, and returns how often.
func (s *apiSoak) kills(ctx context.Context, until time.Time) (n int) {
	random := rand.New(rand.NewPCG(5, 13))
	for ctx.Err() == nil {
		for range 8 + random.IntN(8) {
			pause.For(ctx, time.Second)
			if now, err := s.in.lookAtMemory(); err == nil {
				s.peak = max(s.peak, now)
			}
		}
		if time.Now().Before(until) && ctx.Err() == nil {
			s.at(&s.killed)
			s.in.kill9()
			s.in.start()
			s.at(&s.started)
			n++
		}
	}
	return n
}

// at sets a time.
func (s *apiSoak) at(which *time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*which = time.Now()
}

// parts describes the memory of the agent: file-backed pages, which belong to its binary and can be dropped at any time, and the rest.
func (in *instance) parts() string {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", in.cmd.Process.Pid))
	if err != nil {
		return err.Error()
	}
	found := ""
	for line := range strings.Lines(string(status)) {
		for _, name := range []string{"VmRSS:", "RssAnon:", "RssFile:"} {
			if strings.HasPrefix(line, name) {
				found += strings.Join(strings.Fields(line), " ") + " "
			}
		}
	}
	return found
}

// lookAtMemory returns the memory of the agent in KiB.
func (in *instance) lookAtMemory() (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", in.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rss, _ := strings.Cut(string(status), "VmRSS:")
	var n int
	_, err = fmt.Sscan(rss, &n)
	return n, err
}

func (s *apiSoak) list(k soakKind) (map[string]string, runtime.Object, error) {
	list := k.list()
	if err := s.rest(k.group, runtime.ContentTypeJSON).Get().Namespace("default").Resource(k.plural).Do(context.Background()).Into(list); err != nil {
		return nil, nil, err
	}
	found := map[string]string{}
	err := meta.EachListItem(list, func(o runtime.Object) error {
		m, err := meta.Accessor(o)
		if err == nil {
			found[m.GetName()] = fmt.Sprint(m.GetUID(), " ", m.GetResourceVersion())
		}
		return err
	})
	return found, list, err
}

// same compares the informers with lists.
func (s *apiSoak) same(informers map[string]cache.Store) error {
	for _, k := range soakKinds() {
		want, _, err := s.list(k)
		if err != nil {
			return err
		}
		for name, store := range informers {
			if !strings.HasPrefix(name, k.plural+" ") {
				continue
			}
			have := map[string]string{}
			for _, o := range store.List() {
				if m, err := meta.Accessor(o); err == nil {
					have[m.GetName()] = fmt.Sprint(m.GetUID(), " ", m.GetResourceVersion())
				}
			}
			if !maps.Equal(have, want) {
				return fmt.Errorf("%s: %v, and a list has %v", name, have, want)
			}
		}
	}
	return nil
}

// settled compares what the API shows with the containers that run.
func (s *apiSoak) settled() error {
	kinds := soakKinds()
	_, list, err := s.list(kinds[0])
	if err != nil {
		return err
	}
	ids, running := map[string]bool{}, map[string]int{}
	for _, p := range list.(*corev1.PodList).Items {
		if p.Status.Phase == corev1.PodSucceeded && p.Labels[batchv1.JobNameLabel] != "" {
			continue
		}
		if !isReady(p) || p.DeletionTimestamp != nil {
			return fmt.Errorf("pod %s is not ready: %s", p.Name, brief(p))
		}
		running[p.Labels["app"]]++
		for _, c := range p.Status.ContainerStatuses {
			_, id, _ := strings.Cut(c.ContainerID, "://")
			ids[id] = true
		}
	}
	if _, list, err = s.list(kinds[2]); err != nil {
		return err
	}
	for _, d := range list.(*appsv1.DeploymentList).Items {
		if int(*d.Spec.Replicas) != running[d.Name] || d.Status.ReadyReplicas != *d.Spec.Replicas {
			return fmt.Errorf("deployment %s: %d replicas, status %+v, and %d run", d.Name, *d.Spec.Replicas, d.Status, running[d.Name])
		}
	}
	if _, list, err = s.list(kinds[3]); err != nil {
		return err
	}
	for _, j := range list.(*batchv1.JobList).Items {
		if j.Status.Succeeded != 1 || j.Status.Failed != 0 {
			return fmt.Errorf("job %s: %+v", j.Name, j.Status)
		}
	}
	tasks, _ := filepath.Glob(filepath.Join(s.in.state, "runc/monopod/*"))
	shown := 0
	for _, task := range tasks {
		if ids[filepath.Base(task)] {
			shown++
		}
	}
	if shown != len(ids) || len(tasks) != shown && len(tasks) != 2*shown { // with or without sandboxes
		return fmt.Errorf("%d containers are shown, %d of these run, of %d", len(ids), shown, len(tasks))
	}
	s.in.t.Logf("%d containers are shown, and %d tasks run", len(ids), len(tasks))
	return nil
}

// empty deletes everything.
func (s *apiSoak) empty() {
	for _, k := range slices.Backward(soakKinds()) {
		if err := s.rest(k.group, runtime.ContentTypeJSON).Delete().Namespace("default").Resource(k.plural).Body(&metav1.DeleteOptions{}).Do(context.Background()).Error(); err != nil {
			s.t.Errorf("%s: %v", k.plural, err)
		}
		s.in.eventually("all "+k.plural+" are deleted", func() error {
			left, _, err := s.list(k)
			delete(left, "kube-root-ca.crt") // which is monopod's own
			if err == nil && len(left) > 0 {
				err = fmt.Errorf("%v", left)
			}
			return err
		})
	}
}
