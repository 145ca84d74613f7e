package storage_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/manifests/defaults"
	"monopod/manifests/manifesttest"
	"monopod/manifests/podhash"
	"monopod/manifests/policy"
)

const goodStorage = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: c}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: v}
spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /x}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: s, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: Rancher.io/local-path
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: i}
spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, iscsi: {targetPortal: 1.2.3.4, iqn: "iqn.2001-04.com.example:disk", lun: 0}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: set}
spec:
  serviceName: set
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: c, image: i, volumeMounts: [{name: data, mountPath: /d}]}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOncePod], resources: {requests: {storage: 1Gi}}}
`

func TestStorageDocumentsAreRead(t *testing.T) {
	c, err := decode.All("f", []byte(goodStorage), decode.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := manifests.NewObjects(c.Objects)
	claim := o.PersistentVolumeClaim("default", "c")
	if claim == nil || *claim.Spec.VolumeMode != corev1.PersistentVolumeFilesystem {
		t.Errorf("claim %+v", claim)
	}
	refs := manifests.StorageRefs(o, "")
	if len(refs.Volumes) != 2 || refs.Volumes[0].Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain || refs.Volumes[1].Spec.ISCSI.ISCSIInterface != "default" {
		t.Errorf("volumes %+v", refs.Volumes)
	}
	if len(refs.Classes) != 1 || !refs.Classes[0].IsDefault() || refs.Classes[0].ReclaimPolicy != nil {
		t.Errorf("classes %+v", refs.Classes)
	}
	if len(c.Ignored) > 0 {
		t.Errorf("ignored: %v", c.Ignored)
	}
}

// TestStorageDocumentsAreChecked breaks the good ones, one thing at a time.
func TestStorageDocumentsAreChecked(t *testing.T) {
	const anywhere = "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}"
	const claim, hostPath = "metadata: {name: c}\nspec: {accessModes: [ReadWriteOnce], ", "hostPath: {path: /x}"
	for _, tt := range []struct{ from, to, want string }{
		{claim, "metadata: {name: c}\nspec: {", "spec.accessModes: Required value: at least 1 access mode is required"},
		{claim, "metadata: {name: c}\nspec: {accessModes: [Any], ", `spec.accessModes: Unsupported value: "Any"`},
		{claim, "metadata: {name: c}\nspec: {accessModes: [ReadWriteOncePod, ReadOnlyMany], ", "may not use ReadWriteOncePod with other access modes"},
		{claim, claim + `dataSource: {kind: PersistentVolumeClaim, name: x}, `, "not supported: monopod cannot copy volumes"},
		{claim, claim + `storageClassName: Bad_Class, `, "spec.storageClassName"},
		{claim, claim + `volumeMode: Tape, `, `spec.volumeMode: Unsupported value: "Tape"`},
		{claim, claim + `selector: {matchLabels: {"a b": c}}, `, "spec.selector"},
		{claim, claim + `size: 1Gi, `, "unknown field"},
		{"requests: {storage: 1Gi}", "requests: {cpu: 1}", "spec.resources[storage]: Required value"},
		{"requests: {storage: 1Gi}", "requests: {storage: 0}", "must be greater than zero"},
		{"capacity: {storage: 1Gi}, ", "", "spec.capacity: Required value"},
		{"capacity: {storage: 1Gi}", "capacity: {storage: 1Gi, cpu: 1}", "spec.capacity: Unsupported value"},
		{"capacity: {storage: 1Gi}", "capacity: {storage: -1}", "must be greater than zero"},
		{", " + hostPath, "", "spec: Required value: must specify a volume type"},
		{hostPath, hostPath + ", nfs: {server: s, path: /}", "spec.nfs: Forbidden: may not specify more than 1 volume type"},
		{hostPath, "hostPath: {path: /../x}", "spec.hostPath.path: Invalid value"},
		{hostPath, "hostPath: {path: /}, persistentVolumeReclaimPolicy: Recycle", "may not be 'recycle' for a hostPath mount of '/'"},
		{hostPath, hostPath + ", persistentVolumeReclaimPolicy: Burn", "spec.persistentVolumeReclaimPolicy: Unsupported value"},
		{hostPath, "local: {path: /x}", "Local volume requires node affinity"},
		{hostPath, "local: {path: ../x}, " + anywhere, "spec.local.path: Invalid value"},
		{hostPath, hostPath + ", nodeAffinity: {required: {nodeSelectorTerms: []}}", "must have at least one node selector term"},
		{"provisioner: Rancher.io/local-path\n", "", "provisioner: Required value"},
		{"provisioner: Rancher.io/local-path\n", "provisioner: x\nreclaimPolicy: Recycle\n", "reclaimPolicy: Unsupported value"},
		{"iqn.2001-04.com.example:disk", "disk", "spec.iscsi.iqn: Invalid value"},
		{"iqn.2001-04.com.example:disk", "iqn.2001-04.com.example", "spec.iscsi.iqn: Invalid value"},
		{"lun: 0", "lun: 256", "spec.iscsi.lun: Invalid value"},
		{"lun: 0", "lun: 0, chapAuthSession: true", "spec.iscsi.secretRef: Required value"},
		{"targetPortal: 1.2.3.4, ", "", "spec.iscsi.targetPortal: Required value"},
		{"targetPortal: 1.2.3.4, ", "targetPortal: '*:3260', ", `spec.iscsi.targetPortal: Invalid value: "*:3260": must be an IP address or host name`},
		{"targetPortal: 1.2.3.4, ", "targetPortal: 1.2.3.4, portals: [a, b/../c], ", `spec.iscsi.portals[1]: Invalid value: "b/../c"`},
		{"iqn.2001-04.com.example:disk", "iqn.2001-04.com.example:a/../b", "spec.iscsi.iqn: Invalid value"},
		{"iqn.2001-04.com.example:disk", "eui.*/../../../sda*", "spec.iscsi.iqn: Invalid value"},
		{"lun: 0", "lun: 0, iscsiInterface: ../../cron.d/x", "spec.iscsi.iscsiInterface: Invalid value"},
		{"lun: 0", "lun: 0, fsType: x/../../../../tmp/x", `spec.iscsi.fsType: Unsupported value: "x/../../../../tmp/x"`},
		{"lun: 0", "lun: 0, fsType: etx4", `did you mean "ext4"?`},
		{hostPath, "local: {path: /x, fsType: x/../../tmp/x}, " + anywhere, `spec.local.fsType: Unsupported value: "x/../../tmp/x"`},
		{hostPath, "nfs: {server: --x, path: /}", "spec.nfs.server: Invalid value"},
		{hostPath, `nfs: {server: s, path: "/x\ny"}`, "spec.nfs.path: Invalid value"},
		{hostPath, "nfs: {server: s, path: /}, mountOptions: [hard, -x]", `spec.mountOptions[1]: Invalid value: "-x": must not begin with '-'`},
		{"[ReadWriteOncePod]", "[]", "spec.volumeClaimTemplates[0].spec.accessModes: Required value"},
		{"[ReadWriteOncePod]", "[ReadWriteOncePod], dataSourceRef: {kind: K, name: n}", "spec.volumeClaimTemplates[0].spec.dataSourceRef"},
	} {
		if !strings.Contains(goodStorage, tt.from) {
			t.Errorf("there is no %s", tt.from)
		}
		_, err := decode.All("f", []byte(strings.Replace(goodStorage, tt.from, tt.to, 1)), decode.Options{})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v\nwant %s", tt.to, err, tt.want)
		}
	}
}

// TestTypesOfFileSystemsThatDisksHave are accepted, also where none is named.
func TestTypesOfFileSystemsThatDisksHave(t *testing.T) {
	for _, fsType := range []string{`""`, "ext2", "ext3", "ext4", "xfs", "btrfs", "vfat", "ntfs", "iso9660"} {
		text := strings.Replace(goodStorage, "lun: 0", "lun: 0, portals: ['[fd00::1]:3260'], iscsiInterface: bnx2i.00:10, fsType: "+fsType, 1)
		if _, err := decode.All("f", []byte(text), decode.Options{}); err != nil {
			t.Errorf("%s: %v", fsType, err)
		}
	}
}

// TestVolumesOfTheMachineAreForAdministrators: a source that may not use hostPath gets no such volume through a claim.
func TestVolumesOfTheMachineAreForAdministrators(t *testing.T) {
	const nfs = "nfs: {server: s, path: /x}"
	for _, level := range policy.PodSecurityLevels() {
		_, err := decode.All("f", []byte(goodStorage), decode.Options{Policy: policy.Policy{PodSecurity: level}})
		if refused := err != nil && strings.Contains(err.Error(), `spec.hostPath: violates PodSecurity "`+level+`"`); refused != (level != "privileged") {
			t.Errorf("%s: %v", level, err)
		}
		one := strings.Split(strings.Replace(goodStorage, "hostPath: {path: /x}", nfs, 1), "---")[1]
		if _, err := decode.All("f", []byte(one), decode.Options{Policy: policy.Policy{PodSecurity: level}}); (err != nil) != (level == "restricted") {
			t.Errorf("%s: %v", level, err)
		}
	}
}

func TestEphemeralVolumesAreChecked(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: [{name: c, image: i}]\n  volumes: [{name: v, ephemeral: {volumeClaimTemplate: {%}}}]\n"
	for template, want := range map[string]string{
		"metadata: {labels: {a: b}}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}":     "",
		"metadata: {name: x}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}":            "volumeClaimTemplate.metadata.name: Forbidden: cannot be set",
		"spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, dataSource: {kind: K, name: n}}": "volumeClaimTemplate.spec.dataSource: not supported: monopod cannot copy",
		"spec: {resources: {requests: {storage: 1Gi}}}":                                                               "volumeClaimTemplate.spec.accessModes: Required value",
	} {
		_, err := decode.Pods("f", []byte(strings.Replace(pod, "%", template, 1)), decode.Options{})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", template, err, want)
		}
	}
}

// TestAPodRefersToAllThatItsClaimsCanGet: volumes and classes, and which of them others want.
func TestAPodRefersToAllThatItsClaimsCanGet(t *testing.T) {
	const pod = `
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers: [{name: c, image: i}]
  volumes:
  - {name: a, persistentVolumeClaim: {claimName: c}}
  - {name: e, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}
  - {name: i, iscsi: {targetPortal: t, iqn: "iqn.2001-04.com.example:disk", lun: 0, chapAuthSession: true, secretRef: {name: chap}}}
`
	names := manifests.ReferredNames(onlyPod(t, pod))
	if !slices.Equal(names.Claims, []string{"c", "p-e"}) || !slices.Equal(names.Secrets, []string{"chap"}) {
		t.Errorf("names %+v", names)
	}
	c, err := decode.All("f", []byte(strings.Replace(goodStorage, "spec: {accessModes: [ReadWriteOnce], resources", "spec: {volumeName: i, accessModes: [ReadWriteOnce], resources", 1)), decode.Options{})
	if err != nil {
		t.Fatal(err)
	}
	refs := manifests.Resolve(onlyPod(t, pod), "", manifests.NewObjects(c.Objects))
	if len(refs.Claims) != 1 || len(refs.Volumes) != 2 || len(refs.Classes) != 1 || refs.Named["i"] != "default/c" {
		t.Errorf("refs %+v", refs)
	}
	if again := manifests.Resolve(onlyPod(t, pod), "", manifests.NewObjects(c.Objects)); !refs.Same(again) {
		t.Error("the same documents are other references")
	}
	if less := manifests.Resolve(onlyPod(t, pod), "", manifests.NewObjects(c.Objects[:1])); refs.Same(less) {
		t.Error("other documents are the same references")
	}
}

// onlyPod decodes a pod and sets its defaults. Validation and the fates of its fields do not matter.
func onlyPod(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	pod := manifesttest.Pod(t, strings.TrimPrefix(text, "\n---\n"))
	pod.Namespace = "default"
	defaults.Pod(pod)
	return pod
}

// TestADeviceIsPartOfItsContainer in the hash.
func TestADeviceIsPartOfItsContainer(t *testing.T) {
	hash := func(claim string) string {
		return podhash.Container(onlyPod(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: [{name: c, image: i, volumeDevices: [{name: v, devicePath: /dev/x}]}]\n  volumes: [{name: v, persistentVolumeClaim: {claimName: "+claim+"}}]\n"), "c")
	}
	if hash("a") == hash("b") {
		t.Error("another claim makes no difference")
	}
}
