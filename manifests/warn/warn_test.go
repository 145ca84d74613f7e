package warn_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/manifests/warn"
)

const (
	pod  = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: a, image: b%s}]%s}\n"
	head = "apiVersion: apps/v1\nkind: %s\nmetadata: {name: web}\nspec: {replicas: %d, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: b%s}]%s}}%s}\n"
)

func aPod(name, container, spec string) string { return fmt.Sprintf(pod, name, container, spec) }

func of(t *testing.T, partial bool, docs ...string) string {
	t.Helper()
	c, err := decode.All("f", []byte(strings.Join(docs, "---\n")), decode.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return lines(warn.Input{Documents: documents(c), Checked: "in these files", Partial: partial, Platform: manifests.Platform{OS: "linux", Arch: "amd64"}, Node: "here"})
}

func documents(c *manifests.Content) warn.Documents {
	return warn.Documents{Pods: c.Pods, Objects: c.Objects, Workloads: c.Workloads}
}

// lines returns the warnings about an input.
func lines(in warn.Input) string {
	var b strings.Builder
	for _, e := range warn.Of(in) {
		b.WriteString(e.Error() + "\n")
	}
	return b.String()
}

func TestWhatExistsBesidesIsKnownAndIsNotWarnedAbout(t *testing.T) {
	t.Parallel()
	read := func(file, text string) warn.Documents {
		c, err := decode.All(file, []byte(text), decode.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return documents(c)
	}
	mine := read("mine", aPod("a", ", envFrom: [{configMapRef: {name: there}}, {configMapRef: {name: nope}}]", "")+"---\n"+
		fmt.Sprintf(head, "Deployment", 1, ", ports: [{containerPort: 80, hostPort: 80}]", "", ""))
	around := read("around", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: there}\n---\n"+aPod("b", ", ports: [{containerPort: 80, hostPort: 80}], envFrom: [{secretRef: {name: other}}]", "")+
		"---\n"+strings.Replace(fmt.Sprintf(head, "Deployment", 2, ", ports: [{containerPort: 90, hostPort: 90}]", "", ""), "name: web", "name: old", 1))
	got := lines(warn.Input{Documents: mine, Around: around, Platform: manifests.Platform{OS: "linux", Arch: "amd64"}})
	want := "mine:1: pod default/a: spec.containers[0].envFrom[1].configMapRef.name: there is no ConfigMap default/nope: the pod waits for it; add the document, or write optional: true\n" +
		"mine:6: deployment default/web: spec.template.spec.containers[0].ports[0]: host port 80/TCP is also used by Pod default/b at around:5: one of them waits; change the port of one of them\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestWhatWillWaitIsWarnedOf(t *testing.T) {
	t.Parallel()
	claim := "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n"
	service := func(spec string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {selector: {a: b}, " + spec + "}\n"
	}
	set := func(volume string) string {
		return fmt.Sprintf(head, "StatefulSet", 1, "", "", ", volumeClaimTemplates: [{metadata: {name: data}, spec: {volumeName: "+volume+", accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]")
	}
	port := ", ports: [{containerPort: 80, hostPort: 8080}]"
	for _, c := range []struct {
		name string
		docs []string
		// want is in the only warning; empty: there is none.
		want string
	}{
		{"nothing", []string{aPod("a", "", "")}, ""},
		{"a ConfigMap as a volume", []string{aPod("a", "", ", volumes: [{name: v, configMap: {name: c}}]")}, "f:1: pod default/a: spec.volumes[0].configMap.name: there is no ConfigMap default/c in these files: the pod waits for it; add the document, or write optional: true"},
		{"an optional one", []string{aPod("a", "", ", volumes: [{name: v, configMap: {name: c, optional: true}}]")}, ""},
		{"one that is there", []string{aPod("a", "", ", volumes: [{name: v, configMap: {name: c}}]"), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"}, ""},
		{"one of another namespace", []string{aPod("a", "", ", volumes: [{name: v, configMap: {name: c}}]"), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: x}\n"}, "no ConfigMap default/c"},
		{"a Secret as variables", []string{aPod("a", ", envFrom: [{secretRef: {name: s}}]", "")}, "spec.containers[0].envFrom[0].secretRef.name: there is no Secret default/s"},
		{"a Secret as a volume", []string{aPod("a", "", ", volumes: [{name: v, secret: {secretName: s}}]")}, "spec.volumes[0].secret.secretName: there is no Secret default/s"},
		{"in a projected volume", []string{aPod("a", "", ", volumes: [{name: v, projected: {sources: [{secret: {name: s}}]}}]")}, "spec.volumes[0].projected.sources[0].secret.name: there is no Secret default/s"},
		{"a key that is missing", []string{aPod("a", ", env: [{name: A, valueFrom: {configMapKeyRef: {name: c, key: k}}}]", ""), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"}, `env[0].valueFrom.configMapKeyRef.key: ConfigMap default/c has no key "k"`},
		{"a claim", []string{aPod("a", "", ", volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]")}, "there is no PersistentVolumeClaim default/data in these files: the pod waits for it; add {apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}"},
		{"a claim that is there", []string{claim, aPod("a", "", ", volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]")}, ""},
		{"a claim of a volume that is missing", []string{strings.Replace(claim, "spec: {", "spec: {volumeName: v, ", 1)}, "f:1: persistentvolumeclaim default/data: spec.volumeName: there is no PersistentVolume v in these files: pods with the claim wait"},
		{"one in a template", []string{set("v")}, "f:1: statefulset default/web: spec.volumeClaimTemplates[0].spec.volumeName: there is no PersistentVolume v in these files"},
		{"a claim of a volume", []string{strings.Replace(claim, "spec: {", "spec: {volumeName: v, ", 1), volume("hostPath: {path: /x}")}, ""},
		{"a claim that a StatefulSet makes", []string{
			aPod("a", "", ", volumes: [{name: v, persistentVolumeClaim: {claimName: data-web-0}}]"),
			fmt.Sprintf(head, "StatefulSet", 1, "", "", ", volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]"),
		}, ""},
		{"a RuntimeClass", []string{aPod("a", "", ", runtimeClassName: kata")}, "spec.runtimeClassName: there is no RuntimeClass kata"},
		{"a PriorityClass that is built in", []string{aPod("a", "", ", priorityClassName: system-node-critical")}, ""},
		{"in a workload", []string{fmt.Sprintf(head, "Deployment", 1, ", envFrom: [{configMapRef: {name: c}}]", "", "")}, "f:1: deployment default/web: spec.template.spec.containers[0].envFrom[0].configMapRef.name: there is no ConfigMap default/c"},
		{"another machine", []string{aPod("a", "", ", nodeSelector: {kubernetes.io/arch: s390x}")}, "spec.nodeSelector: it is never started on this machine: it requires kubernetes.io/arch=s390x"},
		{"another machine by name", []string{fmt.Sprintf(head, "Deployment", 2, "", ", nodeName: there", "")}, "f:1: deployment default/web: spec.template.spec.nodeName: it runs on this machine, here, although it names there; remove it, or choose machines with spec.nodeSelector"},
		{"this machine by name", []string{aPod("a", "", ", nodeName: here")}, ""},
		{"a host port of several", []string{fmt.Sprintf(head, "Deployment", 2, port, "", "")}, "spec.template.spec.containers[0].ports[0]: its 2 pods cannot share host port 8080/TCP"},
		{"a port of the host's network of several", []string{fmt.Sprintf(head, "Deployment", 2, ", ports: [{containerPort: 80}]", ", hostNetwork: true", "")}, "cannot share host port 80/TCP"},
		{"a host port of one", []string{fmt.Sprintf(head, "Deployment", 1, port, "", "")}, ""},
		{"a host port twice", []string{aPod("a", port, ""), fmt.Sprintf(head, "Deployment", 1, port, "", "")}, "f:6: deployment default/web: spec.template.spec.containers[0].ports[0]: host port 8080/TCP is also used by Pod default/a at f:1"},
		{"a pod of a workload's name", []string{aPod("web-0", "", ""), fmt.Sprintf(head, "StatefulSet", 1, "", "", "")}, "f:6: statefulset default/web: metadata.name: its pod web-0 has the same name as that of Pod default/web-0 at f:1"},
		{"pods of two workloads", []string{fmt.Sprintf(head, "Deployment", 1, "", "", ""), fmt.Sprintf(head, "StatefulSet", 1, "", "", "")}, "its pod web-0 has the same name as that of Deployment default/web"},
		{"a NodePort", []string{service("type: NodePort, ports: [{port: 80}]")}, ""},
		{"a LoadBalancer", []string{service("type: LoadBalancer, ports: [{port: 80}]")}, ""},
		{"another port", []string{service("ports: [{port: 80, targetPort: 8080}]")}, ""},
		{"SCTP", []string{service("ports: [{port: 80, protocol: SCTP}]")}, "spec.ports[0].protocol: Services do not forward SCTP"},
		{"the same port", []string{service("ports: [{name: a, port: 80, targetPort: 80}, {name: b, port: 81}]")}, ""},
		{"a Service for nobody", []string{"apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{port: 80}]}\n"}, "spec.selector: it is missing"},
		{"another name", []string{"apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {type: ExternalName, externalName: example.com}\n"}, ""},
		{"a volume of a driver", []string{"apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: v}\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], csi: {driver: d, volumeHandle: h}}\n"}, "f:1: persistentvolume v: spec: it is never bound to a claim"},
	} {
		got := of(t, false, c.docs...)
		if c.want == "" && got != "" || c.want != "" && (strings.Count(got, "\n") != 1 || !strings.Contains(got, c.want)) {
			t.Errorf("%s: want %q, got\n%s", c.name, c.want, got)
		}
	}
}

func volume(source string) string {
	return "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: v}\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], " + source + "}\n"
}

// TestAClaimOfAVolumeThatCannotBeMountedIsWarnedOf beside the volume itself.
func TestAClaimOfAVolumeThatCannotBeMountedIsWarnedOf(t *testing.T) {
	t.Parallel()
	const csi = "csi: {driver: d, volumeHandle: h}"
	claim := func(more string) string {
		return "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {" + more + "accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n"
	}
	for name, c := range map[string]struct{ claim, volume, want string }{
		"that it names":   {claim("volumeName: v, "), volume(csi), "f:1: persistentvolumeclaim default/data: spec.volumeName: PersistentVolume v cannot be mounted here"},
		"that names it":   {claim(""), volume(csi + ", claimRef: {name: data, namespace: default}"), "f:1: persistentvolumeclaim default/data: spec: PersistentVolume v is for this claim"},
		"that names both": {claim("volumeName: v, "), volume(csi + ", claimRef: {name: data, namespace: default}"), "f:1: persistentvolumeclaim default/data: spec.volumeName: PersistentVolume v cannot be mounted here"},
	} {
		got := of(t, false, c.claim, c.volume)
		if strings.Count(got, "\n") != 2 || !strings.Contains(got, c.want) || !strings.Contains(got, "persistentvolume v: spec: it is never bound to a claim") {
			t.Errorf("a volume %s: got\n%s", name, got)
		}
	}
}

// What is missing may be in a file that could not be read.
func TestNothingIsMissingWhereSomeDocumentsCannotBeRead(t *testing.T) {
	t.Parallel()
	if got := of(t, true, aPod("a", "", ", runtimeClassName: kata")); got != "" {
		t.Errorf("%s", got)
	}
}

func TestThereAreNotManyWarnings(t *testing.T) {
	t.Parallel()
	got := of(t, false, aPod("a", ", envFrom: ["+strings.Repeat("{secretRef: {name: s}},", 300)+"]", ""))
	if n := strings.Count(got, "\n"); n != 200 || !strings.Contains(got, "there are 101 more warnings") {
		t.Errorf("%d lines, the last: %s", n, got[len(got)-100:])
	}
}

// The documents are what a user wrote who took m for mega, and forgot a unit.
func TestAmountsThatCannotBeMeantAreWarnedOf(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../e2e/testdata/cases/c19-memory-millibytes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const want = "f:1: pod default/c19: spec.containers[0].resources.limits.memory: 400m is not a whole number of bytes: m stands for a thousandth; write 400Mi for MiB, or 400M for MB\n" +
		"f:13: pod default/c19b: spec.containers[0].resources.limits.memory: 64 is 64 bytes, too few for a container to start; write 64Mi\n" +
		"f:25: pod default/c19c: spec.containers[0].resources.limits.cpu: 500M are more processors than a machine has; write 500m for thousandths of a processor\n"
	if got := of(t, false, string(text)); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	claim := "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 500m}}}\n"
	for field, docs := range map[string][]string{
		"spec.resources.requests.storage":                                       {claim},
		"spec.volumes[0].emptyDir.sizeLimit":                                    {aPod("a", "", ", volumes: [{name: v, emptyDir: {sizeLimit: 500m}}]")},
		"spec.template.spec.containers[0].resources.requests.ephemeral-storage": {fmt.Sprintf(head, "Deployment", 1, ", resources: {requests: {ephemeral-storage: 500m}}", "", "")},
	} {
		if got := of(t, false, docs...); !strings.Contains(got, field+": 500m is not a whole number of bytes") || strings.Count(got, "\n") != 1 {
			t.Errorf("%s: got %q", field, got)
		}
	}
	if got := of(t, false, aPod("a", ", resources: {limits: {cpu: 640, memory: 1e8, ephemeral-storage: 1G}, requests: {cpu: 64, memory: 1e8}}", ", volumes: [{name: v, emptyDir: {sizeLimit: 0}}]")); got != "" {
		t.Errorf("usual amounts: %s", got)
	}
}
