//go:build before1.30

package podautoscaler

func init() {
	enableOldGates = func(a *HorizontalController) { a.containerResourceMetricsEnabled = true }
}
