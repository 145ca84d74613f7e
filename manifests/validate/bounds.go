package validate

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests/validate/check"
)

// Limits of one pod and of one workload, beyond what runs on one machine: a field of a few bytes must not stand for
// gigabytes of memory. docs/limits.md lists them.
const (
	maxContainers = 100
	maxVolumes    = 500
	// maxMounts is per container, volumeMounts and volumeDevices each.
	maxMounts = 500
	// maxPorts is per container.
	maxPorts = 2_000
	// maxProjections is the number of sources of a projected volume.
	maxProjections = 500
	// maxHostsFile is the size of what hostAliases add to /etc/hosts.
	maxHostsFile  = 1 << 20
	maxDNSOptions = 100
	maxReplicas   = 1_000
	// maxCompletions is that of a Job, whose pods do not run all at once; a CronJob remembers those of each of its runs.
	maxCompletions     = 10_000
	maxCronCompletions = 1_000
	maxHistory         = 500
)

// podsChecker checks what belongs to a pod as a whole.
type podsChecker struct{ *check.Checker }

// tooMany reports a list that is longer than most.
func (c podsChecker) tooMany(path *field.Path, n, most int) {
	if n > most {
		c.Add(field.TooMany(path, n, most))
	}
}

// bounds reports what there is too much of in a pod. Other checks compare each with each: they come after it.
func (c podsChecker) bounds(spec *field.Path) {
	pod := &c.Pod.Spec
	c.tooMany(spec.Child("containers"), len(pod.Containers), maxContainers)
	c.tooMany(spec.Child("initContainers"), len(pod.InitContainers), maxContainers)
	c.tooMany(spec.Child("ephemeralContainers"), len(pod.EphemeralContainers), maxContainers)
	c.tooMany(spec.Child("volumes"), len(pod.Volumes), maxVolumes)
	for _, p := range c.AllContainers(spec) {
		c.tooMany(p.Path.Child("volumeMounts"), len(p.VolumeMounts), maxMounts)
		c.tooMany(p.Path.Child("volumeDevices"), len(p.VolumeDevices), maxMounts)
		c.tooMany(p.Path.Child("ports"), len(p.Ports), maxPorts)
	}
	for i := range pod.Volumes {
		if v := pod.Volumes[i].Projected; v != nil {
			c.tooMany(spec.Child("volumes").Index(i).Child("projected", "sources"), len(v.Sources), maxProjections)
		}
	}
	if pod.DNSConfig != nil {
		c.tooMany(spec.Child("dnsConfig", "options"), len(pod.DNSConfig.Options), maxDNSOptions)
	}
	size := 0
	for i := range pod.HostAliases {
		size += len(pod.HostAliases[i].IP) + 1
		for _, name := range pod.HostAliases[i].Hostnames {
			size += len(name) + 1
		}
	}
	if size > maxHostsFile {
		c.Add(check.TooLong(spec.Child("hostAliases"), fmt.Sprintf("they may add at most %d bytes to /etc/hosts", maxHostsFile)))
	}
}
