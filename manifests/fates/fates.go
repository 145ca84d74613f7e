// Package fates is the table of what becomes of each field of a Pod: enforced, harmless or refused. docs/fields.md is made from it.
//
// It reports what a manifest sets and monopod does not enforce. It must not check whether values are valid: manifests/validate does that.
package fates

import "strings"

// fates is the table of what becomes of each field of a Pod. docs/fields.md is made from it, and a test holds
// it against the Go types: each field has a line, each line has a field.
func fates() []fieldFate {
	var all []fieldFate
	for _, part := range [][]fieldFate{
		metadataFates(), podFates(), schedulingFates(), networkFates(), podSecurityFates(),
		containerFates(), resourceFates(), containerSecurityFates(), mountFates(), volumeFates(),
	} {
		all = append(all, part...)
	}
	return append(all, initContainerFates(all)...)
}

// initContainerFates repeats the lines of regular containers. Fields that init containers must not have are left to validation.
func initContainerFates(all []fieldFate) []fieldFate {
	var lines []fieldFate
	for _, line := range all {
		rest, ok := strings.CutPrefix(line.path, "spec.containers[].")
		if !ok {
			continue
		}
		line.same, line.path = line.path, "spec.initContainers[]."+rest
		lines = append(lines, line)
	}
	return lines
}

const (
	apiServer   = "never: needs an API server"
	noFill      = "never: nothing here copies volumes or restores snapshots"
	fillHint    = "fill the volume from an init container"
	clusterDisk = "never: Kubernetes has removed this volume type or needs a cluster for it"
	noSELinux   = "where the kernel has SELinux: on process, root file system and volumes; elsewhere there is nothing to label, and a warning says so"
	noMedium    = "never: there is no such medium"
	noSeccomp   = "without one Unconfined, or RuntimeDefault with `seccompDefault`; privileged containers never have one"
	noAppArmor  = "a profile asked for by name or type keeps the container waiting where the machine has no AppArmor; without one the default profile where it has"
	linuxOnly   = "never: monopod runs Linux containers"
	forWindows  = "it is for Windows nodes only, as for a kubelet on Linux"
	winIgnored  = "ignored: it has an effect on Windows nodes only"
	tcpHook     = "never: Kubernetes accepts it and then fails, each time the hook is to run"
	tcpHint     = "use exec or httpGet"
)

func metadataFates() []fieldFate {
	return []fieldFate{
		{path: "apiVersion", fate: enforced, note: "v1"},
		{path: "kind", fate: enforced, note: "Pod, in a List or PodList too"},
		{path: "metadata.name", fate: enforced, note: "as written; a kubelet adds the node name to it"},
		{path: "metadata.namespace", fate: enforced, note: "part of the pod's identity; namespaces need not exist"},
		{path: "metadata.labels", fate: enforced},
		{path: "metadata.annotations", fate: enforced, note: "kept and shown, and readable through the downward API"},
		{
			path: "metadata.annotations{container.apparmor.security.beta.kubernetes.io/*}", fate: enforced,
			note: "the old way to write a container's appArmorProfile",
		},
		{path: "metadata.annotations{kubernetes.io/ingress-bandwidth}", fate: enforced, note: "also while the pod runs; host-network pods have no limit"},
		{path: "metadata.annotations{kubernetes.io/egress-bandwidth}", fate: enforced, note: "also while the pod runs; host-network pods have no limit"},
		{path: "metadata.annotations{cdi.k8s.io/*}", fate: enforced, note: "devices by their CDI names, for each container of the pod"},
		{path: "metadata.uid", fate: enforced, note: "made by monopod when left out; a change replaces the pod"},
		{path: "metadata.generateName", fate: harmless, note: "pods of files need a name that stays, so metadata.name is required beside it"},
		{path: "metadata.selfLink", fate: harmless, note: "written by API servers of old"},
		{path: "metadata.resourceVersion", fate: harmless, note: "counts changes in an API server"},
		{path: "metadata.generation", fate: harmless, note: "counts changes in an API server; for pods that it binds here, shown as status.observedGeneration once carried out"},
		{path: "metadata.creationTimestamp", fate: harmless, note: "monopod records when it made the pod"},
		{
			path: "metadata.deletionTimestamp", fate: refused, note: "never: it says that the pod is going away",
			hint: "remove the field to run the pod, or the document to stop it",
		},
		{
			path: "metadata.deletionGracePeriodSeconds", fate: refused, note: "never: it says that the pod is going away",
			hint: "use spec.terminationGracePeriodSeconds",
		},
		{path: "metadata.ownerReferences", fate: harmless, note: "a pod whose controller is in the same source is ignored with a note, because the controller makes it; others live as long as their documents"},
		{path: "metadata.finalizers", fate: harmless, note: "nothing here waits for finalizers: a pod lives as long as its document"},
		{path: "metadata.managedFields", fate: harmless, note: "book-keeping of an API server"},
		{path: "status", fate: harmless, note: "monopod reports the status it observes, as an API server drops the one it is sent"},
	}
}

func podFates() []fieldFate {
	return []fieldFate{
		{
			path: "spec.ephemeralContainers", fate: refused, note: "never: they are added to a running pod through an API, not written in its manifest",
			hint: "add a regular container or a sidecar, or enter the pod with nsenter",
		},
		{path: "spec.restartPolicy", fate: enforced},
		{path: "spec.terminationGracePeriodSeconds", fate: enforced},
		{path: "spec.activeDeadlineSeconds", fate: enforced, note: "counted from the making of the sandbox, whatever the clock is set to; a reboot begins it anew"},
		{path: "spec.shareProcessNamespace", fate: enforced},
		{path: "spec.imagePullSecrets", fate: enforced, note: "Secret documents of type kubernetes.io/dockerconfigjson or kubernetes.io/dockercfg; the node's registry configuration counts after them"},
		{path: "spec.readinessGates", fate: enforced, note: "nothing here sets such conditions, so the pod is never Ready; controllers of an API server set those of pods that it binds here"},
		{
			path: "spec.runtimeClassName", fate: enforced,
			note: "a RuntimeClass document; its handler is a key of `runtimeHandlers` or a well-known OCI runtime in PATH. While one of them is missing the pod waits with the reason",
		},
		{path: "spec.overhead", fate: enforced, note: "that of the RuntimeClass, which it has to be equal to when it is written down; part of the pod's cgroup"},
		{path: "spec.resourceClaims", fate: refused, note: apiServer},
		{path: "spec.evictionResponders", fate: refused, note: apiServer},
		{path: "spec.os.name", fate: enforced, only: []string{"linux"}, later: []string{"windows"}, other: linuxOnly},
		{
			path: "spec.serviceAccountName", fate: harmless,
			note: "it names an identity for an API server; without one no token is mounted, as with a standalone kubelet. The downward API shows it",
		},
		{path: "spec.serviceAccount", fate: harmless, note: "the old name of serviceAccountName"},
		{
			path: "spec.automountServiceAccountToken", fate: harmless,
			note:   "no token is mounted: there is no API server that a pod of a file could log in to. The volume kube-api-access-* of a dump, which an API server adds to pods, is dropped with its mounts. Pods that an API server binds to this node have their tokens",
			remark: "ignored: no token is mounted, because there is no API server to log in to", quiet: []string{"false"},
		},
	}
}

func schedulingFates() []fieldFate {
	const (
		oneNode = "it chooses among nodes, and there is only this one"
		selects = oneNode + "; with `nodeLabels` in the configuration, pods that they do not meet wait"
	)
	return []fieldFate{
		{path: "spec.nodeSelector", fate: harmless, note: selects},
		{path: "spec.nodeName", fate: harmless, note: "the pod runs on the machine that has its file; the status shows that machine's name, as with static pods of a kubelet"},
		{path: "spec.affinity", fate: harmless, note: oneNode + "; with `nodeLabels` in the configuration, pods whose required node affinity they do not meet wait"},
		{path: "spec.tolerations", fate: harmless, note: "there are no taints"},
		{path: "spec.topologySpreadConstraints", fate: harmless, note: oneNode},
		{path: "spec.schedulerName", fate: harmless, note: "there is nothing to schedule"},
		{path: "spec.priorityClassName", fate: enforced, note: "a PriorityClass document, or one of the two that are built in (`monopod docs resources`)"},
		{path: "spec.priority", fate: enforced, note: "order of admission, start, eviction, and stop; a pod that does not fit has those of a lower one make room"},
		{path: "spec.preemptionPolicy", fate: enforced, note: "Never keeps a pod from having others make room; without it, that of its class"},
		{
			path: "spec.schedulingGates", fate: refused, note: "never: a gated pod waits until a controller opens its gates, and there is none",
			hint: "remove the gates to run the pod",
		},
		{path: "spec.schedulingGroup", fate: refused, note: "never: there is no scheduler that starts pods as a group"},
	}
}

func networkFates() []fieldFate {
	return []fieldFate{
		{path: "spec.hostNetwork", fate: enforced},
		{path: "spec.hostPID", fate: enforced},
		{path: "spec.hostIPC", fate: enforced},
		{path: "spec.hostUsers", fate: enforced, note: "false needs a kernel with id-mapped mounts and runc 1.2 or another runtime that has them; the runc that came with monopod is used where the usual one is older"},
		{path: "spec.hostname", fate: enforced},
		{path: "spec.hostnameOverride", fate: enforced},
		{path: "spec.subdomain", fate: enforced},
		{path: "spec.setHostnameAsFQDN", fate: enforced},
		{path: "spec.hostAliases", fate: enforced},
		{path: "spec.dnsPolicy", fate: enforced, note: "ClusterFirst is Default while no clusterDNS is configured, as with a kubelet"},
		{path: "spec.dnsConfig", fate: enforced},
		{path: "spec.enableServiceLinks", fate: harmless, note: "there are no Services to make variables of"},
	}
}

func podSecurityFates() []fieldFate {
	return []fieldFate{
		{path: "spec.securityContext.runAsUser", fate: enforced},
		{path: "spec.securityContext.runAsGroup", fate: enforced},
		{path: "spec.securityContext.runAsNonRoot", fate: enforced},
		{path: "spec.securityContext.supplementalGroups", fate: enforced},
		{path: "spec.securityContext.supplementalGroupsPolicy", fate: enforced},
		{path: "spec.securityContext.fsGroup", fate: enforced, note: "hostPath volumes are not touched, as in Kubernetes"},
		{path: "spec.securityContext.fsGroupChangePolicy", fate: enforced},
		{path: "spec.securityContext.seccompProfile.type", fate: enforced, note: noSeccomp},
		{path: "spec.securityContext.seccompProfile.localhostProfile", fate: enforced, note: "a file below seccompProfileRoot, by default `<rootDirectory>/seccomp`"},
		{path: "spec.securityContext.sysctls", fate: enforced, note: "the safe ones of Kubernetes 1.36, others when `allowedUnsafeSysctls` names them"},
		{path: "spec.securityContext.appArmorProfile", fate: enforced, note: noAppArmor},
		{path: "spec.securityContext.seLinuxOptions", fate: enforced, note: noSELinux},
		{path: "spec.securityContext.seLinuxChangePolicy", fate: harmless, note: "it says how volumes get SELinux labels: here each file gets one (Recursive), where there is SELinux"},
		{path: "spec.securityContext.windowsOptions", fate: harmless, note: forWindows, remark: winIgnored},
	}
}

func containerFates() []fieldFate {
	const c = "spec.containers[]."
	return []fieldFate{
		{path: c + "name", fate: enforced},
		{path: c + "image", fate: enforced},
		{path: c + "imagePullPolicy", fate: enforced},
		{path: c + "command", fate: enforced},
		{path: c + "args", fate: enforced},
		{path: c + "workingDir", fate: enforced},
		{path: c + "env[].name", fate: enforced},
		{path: c + "env[].value", fate: enforced, note: "with $(VAR) expansion"},
		{path: c + "env[].valueFrom.fieldRef", fate: enforced},
		{path: c + "env[].valueFrom.resourceFieldRef", fate: enforced},
		{path: c + "env[].valueFrom.configMapKeyRef", fate: enforced, note: "of a ConfigMap document of the same namespace"},
		{path: c + "env[].valueFrom.secretKeyRef", fate: enforced, note: "of a Secret document of the same namespace; the value is never stored"},
		{path: c + "env[].valueFrom.fileKeyRef", fate: enforced, note: "a file of an emptyDir with lines `NAME='value'`, of at most 1 MiB"},
		{path: c + "envFrom", fate: enforced},
		{path: c + "ports", fate: enforced, note: "host ports are mapped; all others are documentation, as in Kubernetes"},
		{path: c + "terminationMessagePath", fate: enforced, note: "the files of all containers of a pod hold 1 MiB together; writing more fails"},
		{path: c + "terminationMessagePolicy", fate: enforced},
		{path: c + "livenessProbe", fate: enforced},
		{path: c + "readinessProbe", fate: enforced},
		{path: c + "startupProbe", fate: enforced},
		{path: c + "livenessProbe.grpc.mode", fate: enforced, note: "Plaintext, or TLS with any certificate"},
		{path: c + "readinessProbe.grpc.mode", fate: enforced, note: "Plaintext, or TLS with any certificate"},
		{path: c + "startupProbe.grpc.mode", fate: enforced, note: "Plaintext, or TLS with any certificate"},
		{path: c + "lifecycle.postStart", fate: enforced},
		{path: c + "lifecycle.preStop", fate: enforced},
		{path: c + "lifecycle.postStart.tcpSocket", fate: refused, note: tcpHook, hint: tcpHint},
		{path: c + "lifecycle.preStop.tcpSocket", fate: refused, note: tcpHook, hint: tcpHint},
		{path: c + "lifecycle.stopSignal", fate: enforced, note: "needs spec.os.name"},
		{path: c + "restartPolicy", fate: enforced, note: "Always makes a sidecar of an init container"},
		{path: c + "restartPolicyRules", fate: enforced},
		{path: c + "stdin", fate: enforced, note: "open, and empty as long as nobody is attached"},
		{path: c + "stdinOnce", fate: enforced, note: "it counts from the first attach, for which there is no command yet"},
		{path: c + "tty", fate: enforced, note: "what is written to the terminal is in the log"},
	}
}

func resourceFates() []fieldFate {
	const (
		r         = "spec.containers[].resources."
		hugepages = "by the hugetlb cgroup controller; where a machine does not have it, or the page size, the container waits with the reason"
		disk      = "writable layer and logs of the container, with the emptyDirs on disk those of the pod, by accounting every 10 s: the pod is evicted, and comes back with back-off; see `monopod docs differences`"
		reserved  = "a scheduler counts it when it looks for a node; the downward API shows it"
	)
	all := []fieldFate{
		{path: r + "claims", fate: refused, note: apiServer},
		{path: "spec.resources.claims", fate: refused, note: apiServer},
		{path: "spec.containers[].resizePolicy", fate: enforced, note: "cpu and memory are changed while the container runs, unless RestartContainer is asked for"},
	}
	for _, list := range []string{r + "limits", r + "requests"} {
		all = append(
			all,
			fieldFate{path: list + "{cpu}", fate: enforced},
			fieldFate{path: list + "{memory}", fate: enforced},
			fieldFate{path: list + "{hugepages-*}", fate: enforced, note: hugepages},
			fieldFate{
				path: list + "{" + deviceKinds + "}", fate: enforced,
				note: "so many devices of that kind, by the CDI specs of the machine, for the container alone",
			},
			fieldFate{
				path: list + "{}", fate: refused, note: "never: resources of kubernetes.io come from the controllers of a cluster",
				hint: "ask for a device by its CDI kind, vendor/class",
			},
		)
	}
	all = append(
		all,
		fieldFate{path: r + "limits{ephemeral-storage}", fate: enforced, note: disk},
		fieldFate{path: r + "requests{ephemeral-storage}", fate: harmless, note: reserved},
	)
	for _, list := range []string{"spec.resources.limits", "spec.resources.requests"} {
		all = append(
			all,
			fieldFate{path: list + "{cpu}", fate: enforced},
			fieldFate{path: list + "{memory}", fate: enforced},
			fieldFate{path: list + "{hugepages-*}", fate: enforced, note: hugepages},
			fieldFate{path: list + "{}", fate: refused, note: "never: a pod as a whole has cpu, memory and huge pages only", hint: "set it on a container"},
		)
	}
	return all
}

func containerSecurityFates() []fieldFate {
	const s = "spec.containers[].securityContext."
	return []fieldFate{
		{path: s + "runAsUser", fate: enforced},
		{path: s + "runAsGroup", fate: enforced},
		{path: s + "runAsNonRoot", fate: enforced},
		{path: s + "privileged", fate: enforced},
		{path: s + "capabilities", fate: enforced},
		{path: s + "readOnlyRootFilesystem", fate: enforced},
		{path: s + "allowPrivilegeEscalation", fate: enforced},
		{path: s + "procMount", fate: enforced, note: "Unmasked needs hostUsers: false"},
		{path: s + "seccompProfile.type", fate: enforced, note: noSeccomp},
		{path: s + "seccompProfile.localhostProfile", fate: enforced, note: "a file below seccompProfileRoot, by default `<rootDirectory>/seccomp`"},
		{path: s + "appArmorProfile", fate: enforced, note: noAppArmor},
		{path: s + "seLinuxOptions", fate: enforced, note: noSELinux},
		{path: s + "windowsOptions", fate: harmless, note: forWindows, remark: winIgnored},
	}
}

func mountFates() []fieldFate {
	const m = "spec.containers[].volumeMounts[]."
	return []fieldFate{
		{path: m + "name", fate: enforced},
		{path: m + "mountPath", fate: enforced},
		{path: m + "readOnly", fate: enforced},
		{path: m + "recursiveReadOnly", fate: enforced, note: "Enabled needs Linux 5.12 and an OCI runtime that knows the mount option rro"},
		{path: m + "mountPropagation", fate: enforced},
		{path: m + "subPath", fate: enforced, note: "links in the volume are followed as long as they do not lead out of it"},
		{path: m + "subPathExpr", fate: enforced},
		{path: m + "bindMountOptions", fate: enforced},
		{path: "spec.containers[].volumeDevices", fate: enforced, note: "of a claim with volumeMode Block that is bound to a PersistentVolume of a block device"},
	}
}

func volumeFates() []fieldFate {
	const v = "spec.volumes[]."
	all := []fieldFate{
		{path: v + "name", fate: enforced},
		{path: v + "hostPath", fate: enforced, note: "all types; a relative path is refused"},
		{path: v + "image", fate: enforced, note: "pulled with the images of the containers that mount it; read-only, nothing in it can be executed"},
		{path: v + "emptyDir.medium", fate: enforced, note: "HugePages of a size that the pod requests", only: []string{"", "Memory", "HugePages", "HugePages-*"}, other: noMedium},
		{path: v + "emptyDir.sizeLimit", fate: enforced, note: "on disk by accounting every 10 s: the pod is evicted, and comes back with back-off; see `monopod docs differences`"},
		{path: v + "emptyDir.mode", fate: enforced, note: "fsGroup adds the rights of the group"},
		{path: v + "persistentVolumeClaim", fate: enforced, note: "bound to a PersistentVolume document (hostPath, local, nfs, iscsi), else a directory below `<rootDirectory>/volumes`; see `monopod docs volumes`"},
	}
	all = append(all, ephemeralFates(v+"ephemeral.volumeClaimTemplate.")...)
	for _, name := range []string{"configMap", "secret", "downwardAPI", "projected"} {
		all = append(all, fieldFate{path: v + name, fate: enforced, note: "on a tmpfs; follows edits within a second, as a whole"})
	}
	all = append(all,
		fieldFate{path: v + "nfs", fate: enforced, note: "by the machine's mount.nfs; where that is not installed the pod waits, and says which package has it"},
		fieldFate{path: v + "iscsi", fate: enforced, note: "by the machine's iscsiadm; where that is not installed the pod waits, and says which package has it"},
	)
	all = append(all, fieldFate{
		path: v + "projected.sources[].serviceAccountToken", fate: refused,
		note: apiServer, hint: "remove the volume and its mounts: a pod of a file has no service account",
	})
	for _, name := range []string{"clusterTrustBundle", "podCertificate"} {
		all = append(all, fieldFate{path: v + "projected.sources[]." + name, fate: refused, note: apiServer})
	}
	for _, name := range []string{
		"gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "glusterfs", "rbd", "flexVolume", "cinder", "cephfs",
		"flocker", "fc", "azureFile", "vsphereVolume", "quobyte", "azureDisk", "photonPersistentDisk",
		"portworxVolume", "scaleIO", "storageos", "csi",
	} {
		all = append(all, fieldFate{path: v + name, fate: refused, note: clusterDisk, hint: "mount it on the host and use a hostPath volume"})
	}
	return all
}

// ephemeralFates are those of the claim of an ephemeral volume.
func ephemeralFates(t string) []fieldFate {
	return []fieldFate{
		{path: strings.TrimSuffix(t, "."), fate: enforced, note: "made with the pod and removed with it, not with its containers"},
		{path: t + "metadata", fate: harmless, note: "nobody can ask for the claim; labels and annotations are all that the API allows"},
		{path: t + "spec.accessModes", fate: enforced},
		{path: t + "spec.selector", fate: enforced},
		{path: t + "spec.resources.requests", fate: enforced, note: "the least size of a PersistentVolume; the size of a directory is not limited"},
		{path: t + "spec.resources.limits", fate: harmless, note: "it bounds what a provisioner makes, and directories have no size"},
		{path: t + "spec.volumeName", fate: enforced},
		{path: t + "spec.storageClassName", fate: enforced},
		{path: t + "spec.volumeMode", fate: enforced},
		{path: t + "spec.dataSource", fate: refused, note: noFill, hint: fillHint},
		{path: t + "spec.dataSourceRef", fate: refused, note: noFill, hint: fillHint},
		{path: t + "spec.volumeAttributesClassName", fate: harmless, note: "it tunes volumes of CSI drivers, and there are none"},
	}
}
