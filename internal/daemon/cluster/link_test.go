package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"monopod/internal/config"
	"monopod/internal/daemon/imagegc"
	"monopod/internal/daemon/imageservice"
	"monopod/internal/daemon/nodeevents"
	"monopod/internal/daemon/sources"
	"monopod/internal/daemon/state"
	"monopod/internal/daemon/telemetry"
	"monopod/internal/daemontest"
	"monopod/internal/testfiles"
	"monopod/manifests"
	"monopod/node/admission"
	"monopod/node/apiserver"
	"monopod/node/drain"
	"monopod/node/events"
	"monopod/node/localapi"
	"monopod/node/nodemeta"
	"monopod/node/shutdown"
	"monopod/runner/ctrd"
	"monopod/runner/ctrd/image"
)

// parts are the dependencies of a Link and NodeFacts; none of them runs.
type parts struct {
	cfg  *config.Loaded
	deps Deps
	of   FactsDeps
	gate *admission.Controller
}

func newParts(t *testing.T) *parts {
	t.Helper()
	dir := t.TempDir()
	testfiles.Write(t, filepath.Join(dir, "config.yaml"), "kubeconfig: none\nrootDirectory: "+filepath.Join(dir, "root")+"\n")
	cfg, err := daemontest.LoadIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	changes, changed := &state.Changes{}, NewSignal()
	store := state.New(changes, nil)
	gate := admission.New(admission.Config{
		Store: drain.NewStore(filepath.Join(dir, "drain.json"), "boot"), Pods: func() ([]drain.Pod, error) { return nil, nil },
		Subscribe: changes.Subscribe, Changed: changed.Send, Record: func(_, _, _ string) {}, Log: log,
	})
	p := &parts{cfg: cfg, gate: gate}
	p.of = FactsDeps{
		Log: log, State: store, Images: &imagegc.Images{Pods: store, Log: log}, Usage: &telemetry.Usage{},
		Addresses: func() ([]string, error) { return []string{"192.0.2.1"}, nil }, Closed: gate.Closed,
	}
	events := nodeevents.New(events.New(events.Config{Dir: t.TempDir(), Node: "node", Log: log}), "node", log)
	p.deps = Deps{Log: log, State: store, Events: events, Unmirrored: &state.Unmirrored{}, Facts: p.facts(), Changed: changed}
	return p
}

func (p *parts) facts() *NodeFacts { return NewNodeFacts(p.cfg, p.of) }
func (p *parts) link() *Link       { return New(p.cfg, p.deps) }

func TestWhatAnAPIServerDoesNotShowIsAnEvent(t *testing.T) {
	p := newParts(t)
	a := p.link()
	web := manifests.Key{Namespace: "default", Name: "web"}
	a.reported(web, errors.New("it is\nshown"))
	a.reported(web, nil)
	if why := p.deps.Unmirrored.Reason(web); why != "" {
		t.Error(why)
	}
	a.reported(web, errors.New("it may not"))
	if why := p.deps.Unmirrored.Reason(web); why != "it may not" {
		t.Error(why)
	}
	a.reported(manifests.Key{}, errors.New("nobody answers"))
	a.reported(manifests.Key{}, nil)
	var got []string
	for _, e := range a.Events.List(events.Filter{}) {
		got = append(got, e.InvolvedObject.Kind+" "+e.Reason+": "+e.Message)
	}
	want := "Pod FailedMirrorPod: the API server does not show it: it is\nshown\nPod FailedMirrorPod: the API server does not show it: it may not\nNode APIServerUnreachable: this machine is not reported to the API server: nobody answers\nNode APIServerReachable: this machine is reported to the API server"
	if strings.Join(got, "\n") != want {
		t.Error(strings.Join(got, "\n"))
	}
}

func TestTheNodeHasWhatTheMachineHas(t *testing.T) {
	p := newParts(t)
	p.cfg.Port = 10250
	p.of.Resources = someResources{}
	if set := p.facts().Now().Set; len(set.Labels) > 0 {
		t.Errorf("nothing is set: %v", set)
	}
	p.of.Set = func() nodemeta.Metadata { return nodemeta.Metadata{Labels: map[string]string{"a": "b"}} }
	if set := p.facts().Now().Set; set.Labels["a"] != "b" {
		t.Errorf("%v", set)
	}
	facts := p.facts().Now()
	if facts.Capacity.Cpu().IsZero() || facts.Allocatable.Memory().IsZero() || facts.Info.KernelVersion == "" || facts.Info.ContainerRuntimeVersion != "containerd://"+linkedContainerd() || facts.Conditions[0].Status != "False" || facts.Port != 10250 {
		t.Errorf("%+v", facts)
	}
	if pods, complete := (mirrored{p.of.State}).Pods(); complete || len(pods) > 0 {
		t.Errorf("it knows of pods: %v", pods)
	}
}

// TestTheNodeTellsWhichContainerdRuns: the one inside, or the one that is asked, which may be replaced while we run.
func TestTheNodeTellsWhichContainerdRuns(t *testing.T) {
	p := newParts(t)
	if got := p.facts().system().ContainerRuntimeVersion; got != "containerd://"+linkedContainerd() {
		t.Errorf("inside: %s", got)
	}
	p.cfg.ContainerRuntimeEndpoint = "unix:///x"
	facts := p.facts()
	for _, c := range []struct {
		rt   telemetry.Measured
		want string
	}{
		{nil, "containerd://Unknown"},
		{&daemontest.FakeRuntime{}, "containerd://Unknown"},
		{&daemontest.FakeRuntime{Version: "v9.8.7"}, "containerd://9.8.7"},
		{nil, "containerd://9.8.7"}, // it is away for a moment
		{&daemontest.FakeRuntime{Version: "1.7.29-0ubuntu1"}, "containerd://1.7.29-0ubuntu1"},
	} {
		detach := func() {}
		if c.rt != nil {
			detach = p.of.Usage.Attach(c.rt)
		}
		got := facts.system().ContainerRuntimeVersion
		detach()
		if got != c.want {
			t.Errorf("%+v: %s, want %s", c.rt, got, c.want)
		}
	}
}

func TestTheNodeTellsThatItTakesNoPods(t *testing.T) {
	p := newParts(t)
	facts := p.facts()
	told := func(what string, unschedulable bool, message string) {
		t.Helper()
		select {
		case <-p.deps.Changed:
		default:
			t.Errorf("%s: nobody is told", what)
		}
		got := facts.Now()
		if ready := got.Conditions[len(got.Conditions)-1]; got.Unschedulable != unschedulable || ready.Type != corev1.NodeReady || ready.Message != message {
			t.Errorf("%s: %v %+v", what, got.Unschedulable, ready)
		}
	}
	starting := p.of.State.Trouble().Error()
	if _, err := p.gate.Cordon(localapi.DrainRequest{}); err != nil {
		t.Fatal(err)
	}
	told("cordon", true, starting)
	if _, err := p.gate.Undrain(); err != nil {
		t.Fatal(err)
	}
	told("uncordon", false, starting)
	p.gate.ShutDown(&shutdown.Progress{Groups: []shutdown.Group{{}}})
	told("shutdown", false, "node is shutting down")
	p.gate.ShutDown(nil)
	told("no shutdown", false, starting)
}

// someResources implements Resources.
type someResources struct{}

func (someResources) Capacity() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("2Gi")}
}

func (someResources) Allocatable() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}
}

// album are the images of a runtime.
type album struct {
	imageservice.Service
	all  []ctrd.ImageUse
	asks int
}

func (s *album) List(context.Context) ([]ctrd.ImageUse, error) {
	s.asks++
	return s.all, nil
}

func TestTheNodeTellsOfImagesAndListsThemSeldom(t *testing.T) {
	p := newParts(t)
	f, s := p.facts(), &album{}
	if got := f.images(); got != nil {
		t.Errorf("%+v", got)
	}
	p.of.Images.Use(s, true)
	shows := func(want string, asks int) {
		t.Helper()
		if got := fmt.Sprint(f.images()); got != want || s.asks != asks {
			t.Errorf("%s, asked %d times, want %s, asked %d times", got, s.asks, want, asks)
		}
	}
	shows("[]", 1)
	s.all = []ctrd.ImageUse{{Info: image.Info{Names: []string{"a:1", "a:2", "a:3", "a:4", "a:5"}, RepoDigests: []string{"a@sha256:x"}, Size: 7}}}
	shows("[]", 1)
	p.of.Images.Changed()
	shows("[{[a@sha256:x a:1 a:2 a:3 a:4] 7}]", 2)
	shows("[{[a@sha256:x a:1 a:2 a:3 a:4] 7}]", 2)
}

func TestAPodThatCanNeverRunHereIsToldWhy(t *testing.T) {
	a := newParts(t).link()
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "busybox:1"}}},
	}
	if err := a.checkRunnable(pod); err != nil {
		t.Errorf("a plain pod: %v", err)
	}
	pod.Spec.Volumes = []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "csi.example.com"}}}}
	if err := a.checkRunnable(pod); err == nil || !strings.HasPrefix(err.Error(), "spec.volumes[0].csi: not supported") || strings.Contains(err.Error(), "pod default/web") {
		t.Errorf("a CSI volume: %v", err)
	}
	load := withLeftOut(sources.PartialLoader(config.SourceAPIServer, a.policy))
	got, err := load("API server", []byte(`{"apiVersion":"v1","kind":"List","items":[]}`+"\n---\n# pod a/b: no\n# pod a/c: no"))
	if err != nil || len(got.Pods) > 0 || !slices.Equal(got.Ignored, []string{"pod a/b: no", "pod a/c: no"}) {
		t.Errorf("%v %+v", err, got)
	}
}

func TestANodeThatWatchesNothingIsShortOfNothing(t *testing.T) {
	var got []string
	for _, c := range newParts(t).facts().Now().Conditions {
		got = append(got, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason))
	}
	want := "MemoryPressure=False NotWatched, DiskPressure=False NotWatched, PIDPressure=False NotWatched, Ready=False KubeletNotReady"
	if strings.Join(got, ", ") != want {
		t.Errorf("%q", got)
	}
}

// Clients parse the version of a Node, and compare it with others of Kubernetes.
func TestTheNodeShowsAVersionOfKubernetes(t *testing.T) {
	pinned, err := os.ReadFile("../../../.ci/modules/kubernetes.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(pinned), "k8s.io/kubernetes "+kubernetesVersion+"\n") {
		t.Errorf("%s is not the release that the tests run against", kubernetesVersion)
	}
	for monopod, want := range map[string]string{
		"devel": "v1.37.2+monopod-devel", "v0.4.1": "v1.37.2+monopod-0.4.1", "devel-0123456789ab-dirty": "v1.37.2+monopod-devel-0123456789ab-dirty",
		"v0.0.0-20260101000000-0123456789ab+dirty": "v1.37.2+monopod-0.0.0-20260101000000-0123456789ab-dirty",
	} {
		got := kubeletVersion(monopod)
		v, err := utilversion.ParseSemantic(got)
		if got != want || err != nil || v.LessThan(utilversion.MustParseSemantic(kubernetesVersion)) {
			t.Errorf("%s: %s, %v", monopod, got, err)
		}
	}
}

func TestSysctlsThatAreNotAllowedAreRejected(t *testing.T) {
	a := newParts(t).link()
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}}}
	if err := a.checkRunnable(pod); err != nil {
		t.Fatal(err)
	}
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel.msgmax", Value: "10000000000"}}}
	rejected, ok := errors.AsType[*apiserver.RejectedError](a.checkRunnable(pod))
	if !ok || rejected.Reason != "SysctlForbidden" || rejected.Message != `forbidden sysctl: "kernel.msgmax" not allowlisted` {
		t.Errorf("%+v", a.checkRunnable(pod))
	}
}

// TestPodsOutsideOfTheNamespacesOfAnAPIServerAreRefused: with the key that would allow them.
func TestPodsOutsideOfTheNamespacesOfAnAPIServerAreRefused(t *testing.T) {
	p := newParts(t)
	p.cfg.Namespaces = map[string][]string{config.SourceAPIServer: {"edge"}}
	a := p.link()
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "web"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}}}
	if err := a.checkRunnable(pod); err != nil {
		t.Error(err)
	}
	pod.Namespace = "shop"
	want := "metadata.namespace: source apiserver may not define objects in namespace shop; write one of edge, or allow it by namespaces: {apiserver: [edge, shop]} in the configuration"
	if err := a.checkRunnable(pod); err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

// TestMatchesFollowsTheLabelsOfClients: what a DaemonSet desires follows them, too.
func TestMatchesFollowsTheLabelsOfClients(t *testing.T) {
	p := newParts(t)
	var set nodemeta.Metadata
	matches := Matches(Selection(p.cfg), func() nodemeta.Metadata { return set })
	spec := &corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}}
	for _, c := range []struct {
		disk string
		want bool
	}{{"", true}, {"hdd", false}, {"ssd", true}} {
		if set = (nodemeta.Metadata{}); c.disk != "" {
			set.Labels = map[string]string{"disk": c.disk}
		}
		if matches(spec) != c.want {
			t.Errorf("%q: %v", c.disk, !c.want)
		}
	}
	if set = (nodemeta.Metadata{LabelsLost: true}); !matches(spec) {
		t.Error("it desires none while labels are lost")
	}
	if !Matches(nil, func() nodemeta.Metadata { return set })(&corev1.PodSpec{NodeSelector: map[string]string{"disk": "hdd"}}) {
		t.Error("a run selects no nodes")
	}
}
