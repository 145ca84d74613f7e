package defaults_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests/defaults"
	"monopod/manifests/manifesttest"
)

func TestVolumesAndProbes(t *testing.T) {
	pod := manifesttest.Pod(t, `
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  volumes:
  - {name: a, secret: {secretName: s}}
  - {name: b, configMap: {name: m, defaultMode: 256}}
  - {name: c, downwardAPI: {items: [{path: x, fieldRef: {fieldPath: metadata.name}}]}}
  - {name: d, projected: {sources: [{serviceAccountToken: {path: t}}, {downwardAPI: {items: [{path: x, fieldRef: {fieldPath: metadata.name}}]}}]}}
  - {name: e, image: {reference: "r:1"}}
  - {name: f, iscsi: {targetPortal: h, iqn: i, lun: 0}}
  - {name: g, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce]}}}}
  containers:
  - name: c
    image: app
    livenessProbe: {httpGet: {port: 80}}
    readinessProbe: {grpc: {port: 80}, periodSeconds: 3}
    lifecycle: {preStop: {httpGet: {port: 80, path: /stop, scheme: HTTPS}}}
`)
	defaults.Pod(pod)
	v, c := pod.Spec.Volumes, pod.Spec.Containers[0]
	for _, d := range []struct {
		name      string
		got, want any
	}{
		{"the mode of a Secret", *v[0].Secret.DefaultMode, int32(0o644)},
		{"a mode that is written", *v[1].ConfigMap.DefaultMode, int32(0o400)},
		{"the mode of fields", *v[2].DownwardAPI.DefaultMode, int32(0o644)},
		{"the version of a field", v[2].DownwardAPI.Items[0].FieldRef.APIVersion, "v1"},
		{"the life of a token", *v[3].Projected.Sources[0].ServiceAccountToken.ExpirationSeconds, int64(3600)},
		{"the version of a projected field", v[3].Projected.Sources[1].DownwardAPI.Items[0].FieldRef.APIVersion, "v1"},
		{"the pull policy of a volume", v[4].Image.PullPolicy, corev1.PullIfNotPresent},
		{"the iSCSI interface", v[5].ISCSI.ISCSIInterface, "default"},
		{"the volume mode of a claim", *v[6].Ephemeral.VolumeClaimTemplate.Spec.VolumeMode, corev1.PersistentVolumeFilesystem},
		{"the path of a probe", c.LivenessProbe.HTTPGet.Path, "/"},
		{"the scheme of a probe", c.LivenessProbe.HTTPGet.Scheme, corev1.URISchemeHTTP},
		{"the timeout", c.LivenessProbe.TimeoutSeconds, int32(1)},
		{"the period", c.LivenessProbe.PeriodSeconds, int32(10)},
		{"the successes", c.LivenessProbe.SuccessThreshold, int32(1)},
		{"the failures", c.LivenessProbe.FailureThreshold, int32(3)},
		{"a period that is written", c.ReadinessProbe.PeriodSeconds, int32(3)},
		{"the gRPC service", *c.ReadinessProbe.GRPC.Service, ""},
		{"a path that is written", c.Lifecycle.PreStop.HTTPGet.Path, "/stop"},
		{"a scheme that is written", c.Lifecycle.PreStop.HTTPGet.Scheme, corev1.URISchemeHTTPS},
	} {
		if diff := cmp.Diff(d.want, d.got); diff != "" {
			t.Errorf("%s: %s", d.name, diff)
		}
	}
	again := pod.DeepCopy()
	if defaults.Pod(again); !cmp.Equal(pod, again) {
		t.Errorf("the second time changes: %s", cmp.Diff(pod, again))
	}
}

func TestAppArmorAnnotationsBecomeFieldsOnce(t *testing.T) {
	const prefix = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix
	for _, tt := range []struct {
		name, annotation string
		pod, container   corev1.AppArmorProfileType
		want             corev1.AppArmorProfileType
	}{
		{name: "the default of the runtime", annotation: "runtime/default", want: corev1.AppArmorProfileTypeRuntimeDefault},
		{name: "no profile", annotation: "unconfined", want: corev1.AppArmorProfileTypeUnconfined},
		{name: "a profile of the machine", annotation: "localhost/x", want: corev1.AppArmorProfileTypeLocalhost},
		{name: "an empty name", annotation: "localhost/"},
		{name: "nothing", annotation: ""},
		{name: "the profile of the pod", annotation: "unconfined", pod: corev1.AppArmorProfileTypeUnconfined},
		{
			name: "a field that is written", annotation: "unconfined",
			container: corev1.AppArmorProfileTypeRuntimeDefault, want: corev1.AppArmorProfileTypeRuntimeDefault,
		},
	} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{prefix + "c": tt.annotation}},
			Spec:       corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{}, Containers: []corev1.Container{{Name: "c"}, {Name: "other"}}},
		}
		if tt.pod != "" {
			pod.Spec.SecurityContext.AppArmorProfile = &corev1.AppArmorProfile{Type: tt.pod}
		}
		if tt.container != "" {
			pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: tt.container}}
		}
		defaults.AppArmor(pod)
		var got corev1.AppArmorProfileType
		if sc := pod.Spec.Containers[0].SecurityContext; sc != nil && sc.AppArmorProfile != nil {
			got = sc.AppArmorProfile.Type
		}
		if got != tt.want || pod.Spec.Containers[1].SecurityContext != nil {
			t.Errorf("%s: %q, want %q; the other container has %v", tt.name, got, tt.want, pod.Spec.Containers[1].SecurityContext)
		}
	}
}

func TestNamespacesOfObjects(t *testing.T) {
	set := &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{}}}}
	defaults.Object(set, false)
	if mode := set.Spec.VolumeClaimTemplates[0].Spec.VolumeMode; set.Namespace != "default" || mode == nil || *mode != corev1.PersistentVolumeFilesystem {
		t.Errorf("a StatefulSet is in %q, the mode of its claim is %v", set.Namespace, mode)
	}
	volume := &corev1.PersistentVolume{}
	if defaults.Object(volume, true); volume.Namespace != "" {
		t.Errorf("a PersistentVolume is in %q", volume.Namespace)
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}
	if defaults.Object(m, false); m.Namespace != "shop" {
		t.Errorf("a ConfigMap moved to %q", m.Namespace)
	}
}

func TestTemplatesAreNoPods(t *testing.T) {
	t.Parallel()
	limits := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	spec := corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "i", Image: "a"}},
		Containers:     []corev1.Container{{Name: "c", Image: "a", Resources: corev1.ResourceRequirements{Limits: limits}}},
	}
	defaults.Template(&spec)
	c := spec.Containers[0]
	if spec.EnableServiceLinks != nil || c.Resources.Requests != nil || c.ImagePullPolicy != corev1.PullAlways || spec.DNSPolicy != corev1.DNSClusterFirst {
		t.Errorf("have %+v", spec)
	}
}
