-- Shared by scripts that read grants: the route and the ids that a token leased.

-- The ids of a grant: route first, then each with its length; `at` skips those before it.
local function grant_ids(grant, at)
  if not at then
    local _
    _, at = struct.unpack('<Bc0', grant)
  end
  local ids = {}
  while at <= #grant do
    ids[#ids + 1], at = struct.unpack('<Bc0', grant, at)
  end
  return ids
end
