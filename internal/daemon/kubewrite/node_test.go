package kubewrite

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/node/kubeapi"
	"monopod/node/nodemeta"
)

// TestTheNodeIsLabeled: as by kubectl label, annotate and apply --server-side, with all real parts.
func TestTheNodeIsLabeled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := newDaemon(t, dir, "")
	d.open()
	c := newClient(t, d)
	const node = "/api/v1/nodes/machine"
	patch := func(labels, annotations map[string]any) map[string]any {
		return map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}}
	}
	was := c.do(http.StatusOK, "GET", node, nil)
	made := c.do(http.StatusOK, "PATCH", node+"?fieldManager=kubectl-label", patch(map[string]any{"disk": "ssd", "gpu": "none"}, map[string]any{"example.com/note": "a"}))
	got := c.do(http.StatusOK, "GET", node, nil)
	if l := got.GetLabels(); l["disk"] != "ssd" || l["gpu"] != "none" || l["site"] != "lab" || l[corev1.LabelHostname] != "machine" || got.GetAnnotations()["example.com/note"] != "a" {
		t.Errorf("%v %v", l, got.GetAnnotations())
	}
	if made.GetResourceVersion() != got.GetResourceVersion() || got.GetResourceVersion() == was.GetResourceVersion() || got.GetUID() != was.GetUID() {
		t.Errorf("made %v, read %v", made.Object["metadata"], got.Object["metadata"])
	}
	c.do(http.StatusOK, "PATCH", node, patch(map[string]any{"gpu": nil}, map[string]any{}))
	c.do(http.StatusOK, "PATCH", node+"?dryRun=All", patch(map[string]any{"gpu": "dry"}, map[string]any{}))
	edited := c.do(http.StatusOK, "GET", node, nil)
	edited.SetLabels(map[string]string{
		"disk": "hdd", "site": "lab", corev1.LabelHostname: "machine", "kubernetes.io/os": "linux", "kubernetes.io/arch": edited.GetLabels()["kubernetes.io/arch"],
		"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": edited.GetLabels()["kubernetes.io/arch"],
	})
	c.do(http.StatusOK, "PUT", node, edited.Object)
	for _, row := range []struct {
		labels map[string]any
		code   int
		text   string
	}{
		{map[string]any{"site": "other"}, http.StatusForbidden, "label site is defined in nodeLabels in the monopod configuration; change it there"},
		{map[string]any{"site": nil}, http.StatusForbidden, "nodeLabels"},
		{map[string]any{corev1.LabelHostname: "other"}, http.StatusForbidden, "label kubernetes.io/hostname is set by monopod; it cannot be changed"},
		{map[string]any{"kubernetes.io/arch": nil}, http.StatusForbidden, "set by monopod"},
		{map[string]any{"not valid": ""}, http.StatusUnprocessableEntity, "metadata.labels"},
	} {
		if got := c.do(row.code, "PATCH", node, patch(row.labels, map[string]any{})); !strings.Contains(fmt.Sprint(got.Object["message"]), row.text) {
			t.Errorf("%v: %v, want %s", row.labels, got.Object["message"], row.text)
		}
	}
	later := nodemeta.NewStore(filepath.Join(dir, "node.json"), nil)
	if err := later.Load(); err != nil || fmt.Sprint(later.Current().Labels, later.Current().Annotations) != "map[disk:hdd] map[example.com/note:a]" {
		t.Errorf("after a restart: %+v, %v", later.Current(), err)
	}
	if len(d.cordons) > 0 {
		t.Errorf("labels cordon: %v", d.cordons)
	}
}

// TestAppliedLabelsOfTheNodeAreRemovedByTheirManager: which needs the managed fields to be stored.
func TestAppliedLabelsOfTheNodeAreRemovedByTheirManager(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	d.open()
	c := newClient(t, d)
	apply := func(code int, manager string, labels map[string]any) map[string]string {
		return c.send(code, "PATCH", "/api/v1/nodes/machine?fieldManager="+manager, "application/apply-patch+yaml", map[string]any{
			"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "machine", "labels": labels},
		}).GetLabels()
	}
	if l := apply(http.StatusOK, "one", map[string]any{"a": "1", "b": "1"}); l["a"] != "1" || l["b"] != "1" {
		t.Error(l)
	}
	apply(http.StatusConflict, "two", map[string]any{"a": "2"})
	apply(http.StatusOK, "two", map[string]any{"a": "1"}) // shares it
	if l := apply(http.StatusOK, "one", map[string]any{}); l["a"] != "1" || l["b"] != "" || l["site"] != "lab" {
		t.Error(l)
	}
	if l := apply(http.StatusOK, "two", map[string]any{}); l["a"] != "" {
		t.Error(l)
	}
}

func TestWhatTheNodeCannotHaveIsRefused(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	for name, c := range map[string]struct {
		edit func(*corev1.Node)
		is   func(error) bool
		text string
	}{
		"finalizers":  {func(n *corev1.Node) { n.Finalizers = []string{"example.com/a"} }, apierrors.IsForbidden, "neither finalizers nor owners"},
		"owners":      {func(n *corev1.Node) { n.OwnerReferences = []metav1.OwnerReference{{Name: "x"}} }, apierrors.IsForbidden, "neither finalizers nor owners"},
		"a provider":  {func(n *corev1.Node) { n.Spec.ProviderID = "cloud://1" }, apierrors.IsForbidden, "only unschedulable can be changed"},
		"an origin":   {func(n *corev1.Node) { n.Annotations = map[string]string{"monopod.dev/origin": "/x"} }, apierrors.IsForbidden, "set by monopod"},
		"much":        {func(n *corev1.Node) { n.Annotations = map[string]string{"a": strings.Repeat("x", nodemeta.MaxBytes)} }, apierrors.IsRequestEntityTooLargeError, "at most 200"},
		"nodeLabels":  {func(n *corev1.Node) { n.Labels = map[string]string{"site": "other"} }, apierrors.IsForbidden, "nodeLabels"},
		"other nodes": {func(n *corev1.Node) { n.Name = "other" }, apierrors.IsNotFound, "not found"},
	} {
		n := d.node.DeepCopy()
		c.edit(n)
		if err := d.fails(put(n)); !c.is(err) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if m := d.cfg.NodeMeta.Current(); len(m.Labels)+len(m.Annotations) > 0 {
		t.Errorf("%+v", m)
	}
}

// TestTheFirstLabelIsWarnedAbout: without any label, pods select nodes by the platform only.
func TestTheFirstLabelIsWarnedAbout(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	d.cfg.NodeLabels = nil
	label := func(labels map[string]string) kubeapi.Change {
		n := d.node.DeepCopy()
		n.Labels = labels
		return put(n)
	}
	for i, row := range []struct {
		change kubeapi.Change
		warned bool
	}{
		{put(d.node), false},
		{label(map[string]string{"a": "b"}), true},
		{label(map[string]string{"c": "d"}), false},
	} {
		if warnings := d.write(row.change); slices.Contains(warnings, comparedFromNow) != row.warned {
			t.Errorf("%d: %v", i, warnings)
		}
		d.node.Labels = d.cfg.NodeMeta.Current().Labels
	}
	d.cfg.NodeLabels = map[string]string{"site": "lab"}
	d.node.Labels = d.cfg.NodeLabels
	if err := d.cfg.NodeMeta.Set(nodemeta.Metadata{}); err != nil {
		t.Fatal(err)
	}
	if warnings := d.write(label(map[string]string{"site": "lab", "a": "b"})); len(warnings) > 0 {
		t.Errorf("with nodeLabels: %v", warnings)
	}
}

// fullDisk is a NodeMeta that stores nothing.
type fullDisk struct{ NodeMeta }

func (fullDisk) Set(nodemeta.Metadata) error { return errors.New("no space left on device") }

func TestACordonStoresNoLabels(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	d.cfg.NodeMeta = fullDisk{d.cfg.NodeMeta}
	n := d.node.DeepCopy()
	n.Spec.Unschedulable, n.ManagedFields = true, []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	d.write(put(n))
	if !slices.Equal(d.cordons, []bool{true}) {
		t.Errorf("cordons %v", d.cordons)
	}
	n.Annotations = map[string]string{"a": "b"}
	if err := d.fails(put(n)); !strings.Contains(err.Error(), "change labels and annotations of the Node: no space left on device") {
		t.Error(err)
	}
	if len(d.cordons) != 1 {
		t.Errorf("what comes after an error is done: %v", d.cordons)
	}
}

// TestACordonIsNoMatterOfSize: neither labels nor managed fields that are too large prevent it.
func TestACordonIsNoMatterOfSize(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	n := d.node.DeepCopy()
	n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: strings.Repeat("x", nodemeta.MaxBytes)}}
	if err := d.fails(put(n)); !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("without a cordon: %v", err)
	}
	for _, cordoned := range []bool{true, false} {
		d.node.Spec.Unschedulable, n.Spec.Unschedulable = !cordoned, cordoned
		d.write(put(n))
	}
	if !slices.Equal(d.cordons, []bool{true, false}) || len(d.cfg.NodeMeta.Current().ManagedFields) > 0 {
		t.Errorf("cordons %v, %+v", d.cordons, d.cfg.NodeMeta.Current())
	}
	n.Spec.Unschedulable, n.Annotations = true, map[string]string{"a": "b"}
	d.node.Spec.Unschedulable = false
	if err := d.fails(put(n)); !apierrors.IsRequestEntityTooLargeError(err) || len(d.cordons) != 2 {
		t.Errorf("with an annotation: %v, cordons %v", err, d.cordons)
	}
}
