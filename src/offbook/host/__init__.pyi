from offbook.host.host_providers import HostProviders as HostProviders
from offbook.host.host_providers import HostWorkspace as HostWorkspace
