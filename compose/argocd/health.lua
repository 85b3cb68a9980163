-- Health of fleethpa's kinds for Argo CD: resource.customizations.health.fleethpa.io_KIND in the ConfigMap argocd-cm.
local health = {status = "Progressing", message = "fleethpa has not seen it yet"}
if obj.metadata.deletionTimestamp ~= nil then
  health.message = "it is being taken out of the log"
  return health
end
if obj.status == nil or obj.status.conditions == nil then
  return health
end
if obj.status.observedGeneration ~= nil and obj.metadata.generation ~= nil
    and obj.status.observedGeneration < obj.metadata.generation then
  health.message = "fleethpa has not seen the newest change yet"
  return health
end
local found = {}
for _, condition in ipairs(obj.status.conditions) do
  found[condition.type] = condition
end
local function says(kind, status)
  return found[kind] ~= nil and found[kind].status == status
end
local function text(condition)
  if condition.message ~= nil and condition.message ~= "" then
    return condition.reason .. ": " .. condition.message
  end
  return condition.reason
end
if says("Accepted", "False") then
  return {status = "Degraded", message = text(found.Accepted)}
end
if says("Degraded", "True") then
  return {status = "Degraded", message = text(found.Degraded)}
end
if says("Ready", "True") then
  return {status = "Healthy", message = text(found.Ready)}
end
if says("Ready", "False") and found.Ready.reason == "Ended" then
  return {status = "Healthy", message = text(found.Ready)}
end
if found.Ready ~= nil then
  return {status = says("Ready", "Unknown") and "Unknown" or "Progressing", message = text(found.Ready)}
end
return health
