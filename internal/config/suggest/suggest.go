// Package suggest finds what a misspelled name may have meant, and knows the names of keys in other programs. It is pure; it must not know our keys.
package suggest

import (
	"slices"
	"strings"

	"monopod/manifests/explain"
)

// FormerNames maps names of keys in other programs, or in older flags of the kubelet, to ours.
func FormerNames() map[string]string {
	return map[string]string{
		"podManifestPath": "staticPodPath", "manifestPath": "staticPodPath", "manifestURL": "staticPodURL", "manifestURLHeader": "staticPodURLHeader",
		"rootDir": "rootDirectory", "hostnameOverride": "nodeName", "runtimeEndpoint": "containerRuntimeEndpoint",
		"resolverConfig": "resolvConf", "logLevel": "logging.level", "logFormat": "logging.format", "logging.verbosity": "logging.level",
		"imageServiceEndpoint": "containerRuntimeEndpoint",
	}
}

// OfKubelet reports whether the kubelet has a top-level key of that name.
func OfKubelet(name string) bool {
	return slices.ContainsFunc(strings.Fields(kubeletKeys), func(k string) bool { return strings.EqualFold(k, name) })
}

// DidYouMean returns a hint with the nearest of the known names, empty when none is near.
func DidYouMean(name string, known []string) string {
	if best := Nearest(name, known); best != "" {
		return "did you mean " + best + "?"
	}
	return ""
}

// Nearest returns the known name with the smallest edit distance, or "" if all are too far away.
func Nearest(name string, known []string) string {
	best, bestDist := "", min(max(2, len(name)/3)+1, max(2, len(name))) // of a short word, something must stay
	for _, k := range known {
		d := explain.EditDistance(strings.ToLower(name), strings.ToLower(k))
		if _, last, nested := strings.Cut(k, "."); nested && !strings.Contains(name, ".") {
			d = min(d, explain.EditDistance(strings.ToLower(name), strings.ToLower(last)))
		}
		if d < bestDist {
			best, bestDist = k, d
		}
	}
	return best
}

// kubeletKeys are the top-level keys of a KubeletConfiguration (Kubernetes 1.37). Those that monopod does not have get an error that
// explains this, instead of a far-fetched suggestion.
const kubeletKeys = `
enableServer staticPodPath podLogsDir syncFrequency fileCheckFrequency httpCheckFrequency staticPodURL staticPodURLHeader
address port readOnlyPort volumePluginDir providerID tlsCertFile tlsPrivateKeyFile tlsCipherSuites tlsCurvePreferences
tlsMinVersion rotateCertificates serverTLSBootstrap authentication authorization registryPullQPS registryBurst
imagePullCredentialsVerificationPolicy preloadedImagesVerificationAllowlist eventRecordQPS eventBurst
enableDebuggingHandlers enableContentionProfiling healthzPort healthzBindAddress oomScoreAdj clusterDomain clusterDNS
streamingConnectionIdleTimeout nodeStatusUpdateFrequency nodeStatusReportFrequency nodeLeaseDurationSeconds
imageMinimumGCAge imageMaximumGCAge imageGCHighThresholdPercent imageGCLowThresholdPercent volumeStatsAggPeriod
kubeletCgroups systemCgroups cgroupRoot cgroupsPerQOS cgroupDriver singleProcessOOMKill cpuManagerPolicy
cpuManagerPolicyOptions cpuManagerReconcilePeriod memoryManagerPolicy topologyManagerPolicy topologyManagerScope
topologyManagerPolicyOptions qosReserved runtimeRequestTimeout hairpinMode maxPods podCIDR podPidsLimit resolvConf runOnce
cpuCFSQuota cpuCFSQuotaPeriod maxOpenFiles nodeStatusMaxImages contentType kubeAPIQPS kubeAPIBurst serializeImagePulls
maxParallelImagePulls evictionHard evictionSoft evictionSoftGracePeriod evictionPressureTransitionPeriod
evictionMaxPodGracePeriod evictionMinimumReclaim mergeDefaultEvictionSettings podsPerCore enableControllerAttachDetach
protectKernelDefaults makeIPTablesUtilChains iptablesMasqueradeBit iptablesDropBit featureGates failSwapOn memorySwap
containerLogMaxSize containerLogMaxFiles containerLogMaxWorkers containerLogMonitorInterval
configMapAndSecretChangeDetectionStrategy defaultPodSysctls allowedUnsafeSysctls kernelMemcgNotification systemReserved kubeReserved
systemReservedCgroup kubeReservedCgroup enforceNodeAllocatable reservedSystemCPUs showHiddenMetricsForVersion logging
enableSystemLogHandler enableSystemLogQuery shutdownGracePeriod shutdownGracePeriodCriticalPods
shutdownGracePeriodByPodPriority reservedMemory enableProfilingHandler enableDebugFlagsHandler seccompDefault
memoryThrottlingFactor memoryReservationPolicy registerWithTaints registerNode tracing localStorageCapacityIsolation
containerRuntimeEndpoint imageServiceEndpoint failCgroupV1 crashLoopBackOff userNamespaces`
