package apiserver

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
	"monopod/node/apiserver/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Short names of apitest.
var (
	liar            = apitest.Liar
	writeKubeconfig = apitest.WriteKubeconfig
	flood           = apitest.Flood
)

// board is Pods of a test.
type board struct {
	mu       sync.Mutex
	pods     map[string]*corev1.Pod
	partial  bool
	readers  map[chan struct{}]bool
	troubles map[manifests.Key]string
}

func newBoard(pods ...*corev1.Pod) *board {
	b := &board{pods: map[string]*corev1.Pod{}, readers: map[chan struct{}]bool{}, troubles: map[manifests.Key]string{}}
	b.put(pods...)
	return b
}

func (b *board) put(pods ...*corev1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range pods {
		b.pods[p.Namespace+"/"+p.Name] = p
	}
	b.notifyLocked()
}

func (b *board) drop(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pods, name)
	b.notifyLocked()
}

func (b *board) notifyLocked() {
	for c := range b.readers {
		poke(c)
	}
}

func (b *board) Pods() ([]*corev1.Pod, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := []*corev1.Pod{}
	for _, p := range b.pods {
		out = append(out, p)
	}
	return out, !b.partial
}

func (b *board) Subscribe() (<-chan struct{}, func()) {
	c := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.readers[c] = true
	return c, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.readers, c)
	}
}

// tell and trouble are what keeps a pod from being shown.
func (b *board) tell(key manifests.Key, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.troubles, key)
	if err != nil {
		b.troubles[key] = err.Error()
	}
}

func (b *board) trouble(key manifests.Key) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.troubles[key]
}

// running is a pod that runs.
func running(name string) *corev1.Pod {
	at := metav1.NewTime(time.Now().Add(-time.Minute).Truncate(time.Second))
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-of-" + name), Annotations: map[string]string{"kubernetes.io/config.source": "file"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "monopod.test/busybox:1"}}, NodeName: "n1", RestartPolicy: corev1.RestartPolicyAlways},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.229.0.2", PodIPs: []corev1.PodIP{{IP: "10.229.0.2"}}, HostIP: "192.0.2.1", StartTime: &at, QOSClass: corev1.PodQOSBestEffort,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: at}},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "main", Ready: true, Image: "monopod.test/busybox:1", ImageID: "sha256:1", ContainerID: "containerd://1",
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
			}},
		},
	}
}

// with is a copy of a pod, changed.
func with(p *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod {
	p = p.DeepCopy()
	change(p)
	return p
}

// config is that of an agent of tests.
func config(t *testing.T, kubeconfig string, pods *board) Config {
	t.Helper()
	facts := Facts{
		Addresses:  NodeAddresses([]string{"127.0.0.1"}, "n1"),
		Capacity:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi"), corev1.ResourcePods: resource.MustParse("110")},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "monopod is ready"}},
		Info:       corev1.NodeSystemInfo{KubeletVersion: "monopod", Architecture: "amd64", OperatingSystem: "linux"},
		Port:       10250,
	}
	facts.Allocatable = facts.Capacity
	return Config{
		NodeName: "n1", Kubeconfig: kubeconfig, CertDir: filepath.Join(t.TempDir(), "pki"), Register: true, Labels: map[string]string{"site": "lab"},
		Taints:        []corev1.Taint{{Key: "monopod.dev/only-static", Effect: corev1.TaintEffectNoSchedule}},
		LeaseDuration: 4 * time.Second, StatusEvery: 5 * time.Minute, CheckEvery: 500 * time.Millisecond, EventQPS: 50, EventBurst: 100,
		Pods: pods, Tell: pods.tell, Facts: func() Facts { return facts }, Log: slog.New(slog.NewTextHandler(testLog{t}, nil)), Version: "test",
		firstWait: 50 * time.Millisecond, lastWait: time.Second,
	}
}

// testLog writes to the log of a test, to which what runs longer must not.
type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	if os.Getenv("APISERVER_LOG") != "" {
		return os.Stderr.Write(p)
	}
	if l.t.Context().Err() == nil {
		l.t.Log(string(p))
	}
	return len(p), nil
}

// start runs an agent until the end of the test, or until the function is called.
func start(t *testing.T, cfg Config) (stop func()) {
	t.Helper()
	_, stop = startAgent(t, cfg)
	return stop
}

// startAgent is start for those who ask the agent.
func startAgent(t *testing.T, cfg Config) (a *Agent, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	a = New(cfg)
	go func() { done <- a.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return a, stop
}

// eventually polls until try succeeds.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

// quiet discards all log lines.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
