package schema_test

import (
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests/schema"
)

func TestFieldsAreNamedAsInDocuments(t *testing.T) {
	var names []string
	value := reflect.ValueOf(corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	for _, f := range schema.Fields(value.Type()) {
		names = append(names, f.Name)
		if got := value.FieldByIndex(f.Index).Type(); got != f.Type {
			t.Errorf("%s is a %s, and its index leads to a %s", f.Name, f.Type, got)
		}
	}
	if names[0] != "name" || !slices.Contains(names, "emptyDir") || slices.Contains(names, "VolumeSource") {
		t.Errorf("the fields of a volume are %v", names)
	}
	if pod := reflect.TypeFor[corev1.Pod](); !schema.HasField(pod, "spec") || !schema.HasField(pod, "kind") || schema.HasField(pod, "TypeMeta") {
		t.Errorf("the fields of a pod are %v", schema.Fields(pod))
	}
}

func TestLeavesDecodeThemselves(t *testing.T) {
	for typ, want := range map[reflect.Type]bool{
		reflect.TypeFor[string]():            true,
		reflect.TypeFor[[]byte]():            true,
		reflect.TypeFor[resource.Quantity](): true,
		reflect.TypeFor[metav1.Time]():       true,
		reflect.TypeFor[[]string]():          false,
		reflect.TypeFor[map[string]string](): false,
		reflect.TypeFor[corev1.PodSpec]():    false,
	} {
		if got := schema.IsLeaf(typ); got != want {
			t.Errorf("%s is a leaf: %v", typ, got)
		}
	}
}
